"""ImageNet as a tree of JPEG files."""

from __future__ import annotations

from pathlib import Path

from sampa.lab.data.image_files import SIZE, ImageFiles, image_tree, require_same_classes
from sampa.lab.data.places import data_folder, first_of
from sampa.messages import require_choice


def load_imagenet(
    data_dir: str | Path | None, split: str = "train", size: int = SIZE
) -> ImageFiles:
    """ImageNet (ILSVRC 2012) from train/<wnid>/*.JPEG and val/<wnid>/*.JPEG.

    Args:
        data_dir: The folder with train/ and val/, or one that has it as imagenet/. None means
            SAMPA_DATA_DIR.
        split: "train" or "val".
        size: Side of the images seen.

    Raises:
        FileNotFoundError: Saying what was looked for and where to get it.
        ValueError: If the two splits do not have the same classes, or one has no images.
    """
    require_choice("split", split, ("train", "val"))
    folder = data_folder(data_dir)
    source = "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, unpacked to a folder a class"
    places = [folder / "imagenet" / split, folder / split]
    root = first_of(places, f"ImageNet ({split})", source)
    splits = [root.parent / name for name in ("train", "val")]
    require_same_classes(*(path for path in splits if path.is_dir()))
    return image_tree(root, size)

"""Image data sets, from one place."""

from sampa.lab.data.cifar import load_cifar
from sampa.lab.data.cifar10n import load_cifar10n
from sampa.lab.data.digits import load_digits
from sampa.lab.data.image_data import ImageData, Images, resize, subset
from sampa.lab.data.imagenet import ImageFiles, load_imagenet

__all__ = [
    "ImageData",
    "ImageFiles",
    "Images",
    "load_cifar",
    "load_cifar10n",
    "load_digits",
    "load_imagenet",
    "resize",
    "subset",
]

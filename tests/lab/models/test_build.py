"""Networks by name."""

import pytest

from sampa.lab.models import build


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"model must be a known name, got 'resnet65'.*'resnet56'"):
        build("resnet65")


def test_an_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"option of resnet20 .* got 'num_class'.*'num_classes'"):
        build("resnet20", num_class=10)


def test_the_depth_in_a_name_is_not_an_option() -> None:
    with pytest.raises(ValueError, match="option of resnet20 must be a known name, got 'depth'"):
        build("resnet20", depth=56)


def test_weights_for_a_network_without_any_are_refused() -> None:
    with pytest.raises(ValueError, match=r"path of mlp must be None .*, got 'weights\.pth'"):
        build("mlp", path="weights.pth")

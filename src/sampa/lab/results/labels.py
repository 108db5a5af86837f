"""Labels: where names of points go, so that they cover neither points nor each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MARK = 5.0  # half the side of a point's mark, with some room


@dataclass(frozen=True)
class Box:
    """A rectangle by its lower left corner."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        """The area that both cover."""
        width = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        height = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return max(width, 0.0) * max(height, 0.0)


def place(
    spots: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """For each point, how far from it the lower left corner of its label goes.

    Labels are placed one by one, each where it covers least; right of the point if nothing is
    there.

    Args:
        spots: The points.
        sizes: Width and height of their labels, in the same unit.
    """
    taken = [Box(x - MARK, y - MARK, 2 * MARK, 2 * MARK) for x, y in spots]
    found: list[tuple[float, float]] = []
    for (x, y), (width, height) in zip(spots, sizes, strict=True):
        boxes = {o: Box(x + o[0], y + o[1], width, height) for o in _offsets(width, height)}
        best = min(boxes, key=lambda o: sum(boxes[o].overlap(other) for other in taken))
        taken.append(boxes[best])
        found.append(best)
    return found


def _offsets(width: float, height: float) -> Iterator[tuple[float, float]]:
    """Right, left, above, below, and the four corners."""
    middle, left, below = -height / 2 + 1, -width - MARK - 1, -height - MARK
    yield from ((MARK + 1, middle), (left, middle), (-width / 2, MARK), (-width / 2, below))
    yield from (
        (MARK - 1, MARK - 1),
        (MARK - 1, below + 1),
        (left + 2, MARK - 1),
        (left + 2, below),
    )

"""Names of points: beside them where there is room, and never over another."""

from __future__ import annotations

from itertools import combinations

from sampa.lab.report.labels import MARK, Box, place

SIZE = (30.0, 8.0)


def boxes(spots: list[tuple[float, float]]) -> list[Box]:
    offsets = place(spots, [SIZE] * len(spots))
    pairs = zip(spots, offsets, strict=True)
    return [Box(x + dx, y + dy, *SIZE) for (x, y), (dx, dy) in pairs]


def test_a_label_alone_stands_right_of_its_point() -> None:
    ((dx, dy),) = place([(50.0, 50.0)], [SIZE])
    assert dx > MARK
    assert -SIZE[1] < dy < 0


def test_labels_of_close_points_do_not_overlap() -> None:
    found = boxes([(50.0, 50.0), (52.0, 51.0), (51.0, 47.0)])
    assert all(a.overlap(b) == 0 for a, b in combinations(found, 2))


def test_a_label_does_not_cover_a_neighbor() -> None:
    neighbor = (70.0, 50.0)
    first, _ = boxes([(50.0, 50.0), neighbor])
    assert first.overlap(Box(neighbor[0] - MARK, neighbor[1] - MARK, 2 * MARK, 2 * MARK)) == 0


def test_the_overlap_is_the_common_area() -> None:
    assert Box(0, 0, 2, 2).overlap(Box(1, 1, 2, 2)) == 1
    assert Box(0, 0, 2, 2).overlap(Box(3, 0, 2, 2)) == 0

"""The picture of the idea: a step of SAM and a step of SAMPa on one time axis, as measured.

Written by hand as SVG and not by matplotlib: a file that is shown on pages of either color scheme
needs colors for both.
"""

from __future__ import annotations

from dataclasses import dataclass

from sampa.lab.bench.result import BenchResult

WIDTH, HEIGHT = 640, 226
LEFT, RIGHT = 146, 84  # of the time axis: room for names and for numbers
LANE, GAP, TOP = 34, 8, 56
IDEA_STYLE = """
    text { font: 15px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
    .panel { fill: #ffffff; stroke: #d0d7de; }
    .ink { fill: #1b1f24; }
    .muted { fill: #57606a; font-size: 13px; }
    .on { fill: #ffffff; text-anchor: middle; }
    .sam { fill: #bf3a00; }
    .sampa { fill: #1560c8; }
    .bold { font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .panel { fill: #161b22; stroke: #30363d; }
      .ink { fill: #e6edf3; }
      .muted { fill: #9aa4af; }
    }
"""


@dataclass(frozen=True)
class Lane:
    """What one device does in a step: gradients, one after the other."""

    name: str
    method: str
    gradients: tuple[str, ...]


SAM_LANES = (Lane("SAM, one device", "sam", ("∇f(xₜ)", "then ∇f(x̃ₜ)")),)
SAMPA_LANES = (
    Lane("SAMPa, device 1", "sampa", ("∇f(x̃ₜ)",)),
    Lane("SAMPa, device 2", "sampa", ("∇f(yₜ₊₁)",)),
)


def picture(result: BenchResult) -> str:
    """A step of SAM and one of SAMPa, to scale."""
    longest = max(result.milliseconds[lane.method] for lane in (*SAM_LANES, *SAMPA_LANES))
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts = [_heading(result)]
    y = TOP
    for lanes in (SAM_LANES, SAMPA_LANES):
        milliseconds = result.milliseconds[lanes[0].method]
        middle = y + (len(lanes) * (LANE + GAP) - GAP) / 2 + 5
        for lane in lanes:
            parts += _lane(lane, y, milliseconds * scale)
            y += LANE + GAP
        x = LEFT + milliseconds * scale + 10
        parts.append(
            f'<text class="ink bold" x="{x:.1f}" y="{middle:.0f}">{milliseconds:.0f} ms</text>'
        )
        y += GAP
    note = (
        f"Medians of {result.rounds} interleaved steps; where SAM's step divides is not measured."
    )
    parts.append(f'<text class="muted" x="16" y="{HEIGHT - 14}">{note}</text>')
    return _document(alternative(result), parts)


def alternative(result: BenchResult) -> str:
    """The picture in words."""
    ms = result.milliseconds
    return (
        f"A step of SAM computes two gradients one after the other, in {ms['sam']:.0f} ms on one "
        f"device; a step of SAMPa computes two at once on two devices, in {ms['sampa']:.0f} ms"
    )


def _heading(result: BenchResult) -> str:
    machine, workload = result.conditions.values["machine"], result.workload
    where = f"{workload.model}, batch {workload.batch_size}, {machine['processor']}"
    return (
        '<text x="16" y="30"><tspan class="ink bold">One training step</tspan>'
        f'<tspan class="muted" dx="10">{where}, {machine["device"].upper()}, one core per device'
        "</tspan></text>"
    )


def _lane(lane: Lane, y: float, length: float) -> list[str]:
    baseline = y + LANE / 2 + 5
    each = length / len(lane.gradients)
    parts = [f'<text class="ink" x="16" y="{baseline:.0f}">{lane.name}</text>']
    for number, gradient in enumerate(lane.gradients):
        x, width = LEFT + number * each, each - 2
        parts += [
            f'<rect class="{lane.method}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" '
            'rx="4"/>',
            f'<text class="on" x="{x + width / 2:.1f}" y="{baseline:.0f}">{gradient}</text>',
        ]
    return parts


def _document(title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
    panel = (
        f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>'
    )
    lines = [f'{head} width="{WIDTH}">', f"<title>{title}</title>", f"<style>{IDEA_STYLE}</style>"]
    return "\n".join([*lines, panel, *parts, "</svg>", ""])

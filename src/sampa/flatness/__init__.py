"""How flat the loss is around some weights: sharpness, curvature, and the landscape itself.

Pure functions of a model, a `loss_fn` as for `optimizer.step`, and batches; torch alone is needed.

    from sampa import flatness

    flatness.sharpness(model, loss_fn, batches, rho=0.05).value
    flatness.hessian_eigenvalues(model, loss_fn, batches, k=5).values
    flatness.landscape(model, loss_fn, batches, flatness.random_frame(model, dimensions=2)).losses

The loss is the mean over the samples of all batches. The weights come back bit for bit, buffers and
random generators too, and gradients in `.grad` are left alone. Layers behave as in evaluation
(BatchNorm uses its running statistics, dropout is off); with `training=True` as in training, with
the same dropout at every point.

Each measure is documented with its formula, its source and its cost in gradients: one gradient is a
forward and a backward pass over all samples, a forward pass alone a third of it, and the product of
a curvature matrix with a vector two. Results count what they cost (`gradients`).
"""

from sampa.flatness.curvature import (
    Density,
    Eigenvalues,
    Trace,
    hessian_eigenvalues,
    hessian_trace,
    spectral_density,
)
from sampa.flatness.frames import Frame, eigenvector_frame, random_frame, through
from sampa.flatness.landscape import Landscape, landscape
from sampa.flatness.sharpness import Sharpness, sharpness

__all__ = [
    "Density",
    "Eigenvalues",
    "Frame",
    "Landscape",
    "Sharpness",
    "Trace",
    "eigenvector_frame",
    "hessian_eigenvalues",
    "hessian_trace",
    "landscape",
    "random_frame",
    "sharpness",
    "spectral_density",
    "through",
]

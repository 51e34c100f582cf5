"""Muon for the weight matrices inside the layers, Adam for everything else."""

import torch


def orthogonal(g):
    """The nearest orthogonal matrix, roughly, by a quintic Newton-Schulz iteration; g [..., rows, cols]."""
    wide = g.shape[-2] <= g.shape[-1]
    x = g if wide else g.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            same_shape = {}
            for p in group["params"]:
                buf = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - group["momentum"])
                same_shape.setdefault(p.shape, []).append(p)
            for shape, params in same_shape.items():
                grads = [p.grad.lerp(self.state[p]["momentum"], group["momentum"]) for p in params]
                scale = max(1, shape[-2] / shape[-1]) ** 0.5
                for p, update in zip(params, orthogonal(torch.stack(grads)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)


class Mixed:
    """Both optimizers behind one interface; ``named`` maps names to parameters."""

    def __init__(self, named, lr, adam_lr):
        inner = {n: p for n, p in named.items() if n.startswith(("blk.", "layers.", "fc.")) and p.ndim >= 2}
        matrix = {n for n, p in inner.items() if min(p.shape[-2:]) > 16}
        rest = [p for n, p in named.items() if n not in matrix]
        self.parts = [
            Muon([named[n] for n in sorted(matrix)], lr),
            torch.optim.Adam(rest, lr=adam_lr, betas=(0.9, 0.95), eps=1e-10),
        ]
        self.peaks = [lr, adam_lr]

    def step(self, factor):
        """One step at ``factor`` times the peak learning rates; clears the gradients."""
        for part, peak in zip(self.parts, self.peaks, strict=True):
            part.param_groups[0]["lr"] = peak * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states):
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)

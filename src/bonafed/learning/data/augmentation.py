"""Crops and flips of images while training: what a client sees of a sample differs from pass to pass.

`crop-and-flip` moves an image by up to four pixels in each direction, what comes in from outside being its
mirror image, and mirrors every second one from left to right, at random. That is what the rewards paper
does to CIFAR ("random cropping and random horizontal flipping"), as the NIID benchmark that it follows has
it: four pixels of reflection, a random crop of the original size, a flip with probability 1/2.

Which variation a sample gets comes from (seed, round, client, copy), its pass and its place in it, and from
nothing else: not from how clients are grouped or on how many cores they are trained.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bonafed.learning.architectures import FARTHEST

_SHIFTS = 2 * FARTHEST + 1  # in each direction
VARIATIONS = 2 * _SHIFTS**2  # of an image; number 80 is the image itself


def vary(images: Tensor, codes: Tensor) -> Tensor:
    """(m, C, H, W) every image in its variation, codes (m,) from 0 to VARIATIONS - 1.

    >>> image = torch.arange(25.0).view(1, 1, 5, 5)
    >>> [vary(image, torch.tensor([code]))[0, 0, 0].tolist() for code in (80, 81)]
    [[0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0, 0.0]]
    """
    shift, flipped = codes // 2, codes % 2 == 1
    rows = _reflected(shift // _SHIFTS, images.shape[2])
    columns = _reflected(shift % _SHIFTS, images.shape[3])
    columns = torch.where(flipped[:, None], columns.flip(1), columns)
    moved = images.gather(2, rows[:, None, :, None].expand(images.shape))
    return moved.gather(3, columns[:, None, None, :].expand(images.shape))


def _reflected(shift: Tensor, side: int) -> Tensor:
    """(m, side) from which row each row is taken."""
    place = (shift[:, None] + torch.arange(side) - FARTHEST).abs()
    return torch.where(place >= side, 2 * (side - 1) - place, place)

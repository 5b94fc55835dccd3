"""Networks that play a game: A2C has a policy and a value, DQN the value of each action."""

import copy

import torch
from torch import nn

#: By size: channels, kernel and stride of the convolutions, and the width of the linear layer.
LAYERS = {
    "full": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512),
    "small": ([(16, 4, 2), (32, 4, 2)], 128),
    "tiny": ([(8, 3, 2), (8, 3, 1)], 32),
}


def vision(size, frames, side):
    """Returns the layers that see the game, and the number of their outputs."""
    convolutions, width = LAYERS[size]
    layers, channels = [], frames
    for outputs, kernel, stride in convolutions:
        layers += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU()]
        channels = outputs
    layers.append(nn.Flatten())
    seen = nn.Sequential(*layers)
    with torch.no_grad():
        features = seen(torch.zeros(1, frames, side, side)).shape[1]
    return nn.Sequential(*layers, nn.Linear(features, width), nn.ReLU()), width


class ActorCritic(nn.Module):
    """Returns the logits of the actions and the value of each state."""

    def __init__(self, size, frames, side, actions):
        super().__init__()
        self.vision, width = vision(size, frames, side)
        self.policy, self.value = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, frames):
        seen = self.vision(frames)
        return self.policy(seen), self.value(seen).squeeze(-1)


class QNetwork(nn.Module):
    """Returns the value of each action. `target` is an older copy, which is not trained."""

    def __init__(self, size, frames, side, actions):
        super().__init__()
        seen, width = vision(size, frames, side)
        self.online = nn.Sequential(seen, nn.Linear(width, actions))
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, frames):
        return self.online(frames)

    def update_target(self):
        self.target.load_state_dict(self.online.state_dict())

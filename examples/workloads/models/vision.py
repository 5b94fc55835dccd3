"""Image classifiers: VGG, ResNet-18 and ShuffleNet v2."""

from torch import cat, nn

#: Output channels of the convolutions; "P" halves the image.
VGG_LAYERS = {
    "vgg16": "64 64 P 128 128 P 256 256 256 P 512 512 512 P 512 512 512 P",
    "vgg19": "64 64 P 128 128 P 256 256 256 256 P 512 512 512 512 P 512 512 512 512 P",
}

#: By size: the divisor of all channels, the width of VGG's classifier, and the side of what it gets.
VGG_SIZES = {"full": (1, 4096, 7), "small": (4, 512, 2), "tiny": (16, 32, 1)}

#: By size: channels of the four stages of ResNet-18.
RESNET_CHANNELS = {"full": (64, 128, 256, 512), "small": (16, 32, 64, 128), "tiny": (4, 8, 8, 16)}

#: By size: channels of the first layer, of the three stages and of the last layer of ShuffleNet, and the units of each stage.
SHUFFLENET_CHANNELS = {"full": (24, 116, 232, 464, 1024), "small": (12, 32, 64, 128, 256), "tiny": (8, 8, 16, 16, 32)}
SHUFFLENET_UNITS = {"full": (4, 8, 4), "small": (2, 4, 2), "tiny": (1, 2, 1)}


def vgg(name, size, classes):
    """Returns VGG without batch normalization."""
    divisor, width, side = VGG_SIZES[size]
    layers, channels = [], 3
    for layer in VGG_LAYERS[name].split():
        if layer == "P":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, int(layer) // divisor, 3, padding=1), nn.ReLU(inplace=True)]
            channels = int(layer) // divisor
    layers += [nn.AdaptiveAvgPool2d(side), nn.Flatten(), nn.Linear(channels * side * side, width), nn.ReLU(inplace=True)]
    layers += [nn.Dropout(), nn.Linear(width, width), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(width, classes)]
    return initialized(nn.Sequential(*layers))


def convolution(inputs, outputs, kernel, stride=1, groups=1, activation=True):
    """Returns a convolution with batch normalization, and with an activation unless it is left out."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if activation else []))


class ResidualBlock(nn.Module):
    """Two convolutions, and the input added to their result."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.layers = nn.Sequential(
            convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3, activation=False)
        )
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else convolution(inputs, outputs, 1, stride, activation=False)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.activation(self.layers(x) + self.shortcut(x))


def resnet18(size, classes):
    """Returns ResNet-18: four stages of two residual blocks."""
    channels = RESNET_CHANNELS[size]
    layers = [convolution(3, channels[0], 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = channels[0]
    for index, outputs in enumerate(channels):
        layers += [ResidualBlock(inputs, outputs, 1 if index == 0 else 2), ResidualBlock(outputs, outputs, 1)]
        inputs = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return initialized(nn.Sequential(*layers))


class ShuffleUnit(nn.Module):
    """A unit of ShuffleNet v2: half of the channels pass, the other half is convolved, then both are interleaved.

    A unit with stride 2 convolves all channels on both branches, so that it halves the image.
    """

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        half = outputs // 2
        self.is_split = stride == 1
        branch = half if self.is_split else inputs
        self.left = nn.Identity()
        if not self.is_split:
            self.left = nn.Sequential(
                convolution(inputs, inputs, 3, stride, groups=inputs, activation=False), convolution(inputs, half, 1)
            )
        self.right = nn.Sequential(
            convolution(branch, half, 1),
            convolution(half, half, 3, stride, groups=half, activation=False),
            convolution(half, half, 1),
        )

    def forward(self, x):
        left, right = x.chunk(2, dim=1) if self.is_split else (x, x)
        joined = cat([self.left(left), self.right(right)], dim=1)
        count, channels, height, width = joined.shape
        return joined.view(count, 2, channels // 2, height, width).transpose(1, 2).reshape(joined.shape)


def shufflenet(size, classes):
    """Returns ShuffleNet v2 with one times the channels."""
    first, *stages, last = SHUFFLENET_CHANNELS[size]
    layers = [convolution(3, first, 3, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = first
    for outputs, units in zip(stages, SHUFFLENET_UNITS[size]):
        layers.append(ShuffleUnit(inputs, outputs, 2))
        layers += [ShuffleUnit(outputs, outputs, 1) for _ in range(units - 1)]
        inputs = outputs
    layers += [convolution(inputs, last, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return initialized(nn.Sequential(*layers))


def initialized(model):
    """Initializes the weights of a classifier so that the variance is kept from layer to layer."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, module.in_features**-0.5)
        if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
            nn.init.zeros_(module.bias)
    return model


def classifier(name, size, classes):
    """Returns the classifier of this name."""
    if name in VGG_LAYERS:
        return vgg(name, size, classes)
    return resnet18(size, classes) if name == "resnet18" else shufflenet(size, classes)

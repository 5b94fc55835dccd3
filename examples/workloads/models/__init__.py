"""The eight models of Muri's test bed, in three sizes: the published one, and two smaller ones."""

#: Batch sizes of the test bed.
BATCH_SIZES = {
    "vgg16": 16,
    "vgg19": 16,
    "resnet18": 128,
    "shufflenet_v2_x1_0": 128,
    "bert": 4,
    "gpt2": 4,
    "a2c": 64,
    "dqn": 128,
}

SIZES = ("full", "small", "tiny")

"""Images with labels: generated ones, or a folder of JPEG files such as ImageNet."""

import os
from concurrent.futures import ThreadPoolExecutor

import torch

from . import DataError, Source, generator

#: By size: side of the images in pixels, and the number of classes of generated ones.
SIZES = {"full": (224, 1000), "small": (64, 100), "tiny": (32, 8)}

#: Mean and standard deviation of the colors of photographs.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

#: Most threads that decode images.
MAX_THREADS = 64


class GeneratedImages(Source):
    """Noise over a pattern of eight by eight fields that shows the class."""

    def __init__(self, options, rank):
        super().__init__()
        self._side, self.classes = SIZES[options.size]
        self._count, self._seed, self._rank = options.batch_size, options.seed, rank
        self._patterns = torch.randn(self.classes, 3, 8, 8, generator=generator(options.seed, 0, 0))

    def batch(self):
        draw = generator(self._seed, self._rank, self.position + 1)
        labels = torch.randint(0, self.classes, (self._count,), generator=draw)
        images = torch.randn(self._count, 3, self._side, self._side, generator=draw).mul_(0.5)
        images += self._patterns[labels].repeat_interleave(self._side // 8, 2).repeat_interleave(self._side // 8, 3)
        return images, labels


class ImageFolder(Source):
    """The files `CLASS/*.jpg` below a folder or its folder `train`, in another order in each epoch, divided among the ranks."""

    def __init__(self, options, rank, world):
        super().__init__()
        try:
            from PIL import Image
        except ImportError:
            raise DataError("--data requires Pillow to decode images (apt-get install python3-pil)") from None
        self._open = Image.open
        self._side = SIZES[options.size][0]
        self._count, self._seed, self._rank, self._world = options.batch_size, options.seed, rank, world
        names, self._files = list_images(options.data)
        self.classes = len(names)
        self._steps = len(self._files) // (self._count * world)
        if self._steps == 0:
            text = "--data %s: found %d JPEG files in folders of classes, expected at least %d (batch size times ranks)"
            raise DataError(text % (options.data, len(self._files), self._count * world))
        self._order = (None, None)
        self._threads = None
        self.resize(1)

    def resize(self, cpus):
        if self._threads is not None:
            self._threads.shutdown()
        self._threads = ThreadPoolExecutor(min(max(1, int(cpus)), MAX_THREADS))

    def batch(self):
        epoch, step = divmod(self.position, self._steps)
        if self._order[0] != epoch:
            draw = generator(self._seed, 1 << 20, epoch)
            self._order = (epoch, torch.randperm(len(self._files), generator=draw))
        begin = (step * self._world + self._rank) * self._count
        chosen = self._order[1][begin : begin + self._count].tolist()
        draw = generator(self._seed, self._rank, self.position + 1)
        randoms = torch.rand(self._count, 4, generator=draw).tolist()
        images = list(self._threads.map(self._decode, chosen, randoms))
        labels = [self._files[index][1] for index in chosen]
        return torch.stack(images), torch.tensor(labels)

    def _decode(self, index, randoms):
        """Returns a random part of an image, possibly flipped, as a normalized tensor."""
        area, left, top, flip = randoms
        path = self._files[index][0]
        try:
            with self._open(path) as file:
                image = file.convert("RGB")
        except OSError as error:
            raise DataError("%s: cannot be decoded: %s" % (path, error)) from None
        side = max(1, int((0.08 + 0.92 * area) ** 0.5 * min(image.size)))
        x, y = int(left * (image.width - side)), int(top * (image.height - side))
        image = image.resize((self._side, self._side), box=(x, y, x + side, y + side))
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        tensor = pixels.view(self._side, self._side, 3).permute(2, 0, 1).float().div_(255)
        tensor = (tensor - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)
        return tensor.flip(2) if flip < 0.5 else tensor


def list_images(path):
    """Returns the names of the classes, and the path and class of each image."""
    if not os.path.isdir(path):
        raise DataError("--data %s: expected a folder with one folder of JPEG files for each class" % path)
    train = os.path.join(path, "train")
    path = train if os.path.isdir(train) else path
    names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    files = []
    for label, name in enumerate(names):
        for file in sorted(os.listdir(os.path.join(path, name))):
            if file.lower().endswith((".jpg", ".jpeg")):
                files.append((os.path.join(path, name, file), label))
    return names, files

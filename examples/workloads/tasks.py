"""What a workload consists of: a model, its data, its loss and its optimizer."""

import torch
from torch.nn import functional

from data import games, images, text
from models import control, language, vision

#: Steps between two updates of DQN's target network.
TARGET_STEPS = 100

#: Learning rates of language models, by size.
LANGUAGE_RATES = {"full": 1e-4, "small": 3e-4, "tiny": 3e-3}


class Task:
    """A model and what it is trained with."""

    def __init__(self, model, source, optimizer):
        self.model = model
        self.source = source
        self.optimizer = optimizer

    def loss(self, parallel, batch):
        """Returns the loss of a batch. `parallel` is the model, possibly with other ranks."""
        raise NotImplementedError

    def after_step(self, step):
        """Called after the optimizer's step."""


class Classification(Task):
    def loss(self, parallel, batch):
        pictures, labels = batch
        return functional.cross_entropy(parallel(pictures), labels)


class MaskedWords(Task):
    def loss(self, parallel, batch):
        words, positions, targets = batch
        return functional.cross_entropy(parallel(words, positions).flatten(0, 1), targets.flatten())


class NextWord(Task):
    def loss(self, parallel, batch):
        (words,) = batch
        return functional.cross_entropy(parallel(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


class AdvantageActorCritic(Task):
    def loss(self, parallel, batch):
        screens, actions, returns = batch
        logits, values = parallel(screens)
        logarithms = logits.log_softmax(1)
        advantages = returns - values
        chosen = logarithms.gather(1, actions.unsqueeze(1)).squeeze(1)
        entropy = -(logarithms.exp() * logarithms).sum(1).mean()
        return -(chosen * advantages.detach()).mean() + 0.5 * advantages.square().mean() - 0.01 * entropy


class QLearning(Task):
    def loss(self, parallel, batch):
        screens, actions, rewards, after, ended = batch
        values = parallel(screens).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            expected = rewards + games.DISCOUNT * self.model.target(after).max(1).values * ~ended
        return functional.smooth_l1_loss(values, expected)

    def after_step(self, step):
        if step % TARGET_STEPS == 0:
            self.model.update_target()


def create(options, rank, world, device):
    """Returns the task of a model, by its name."""
    if options.model in ("a2c", "dqn"):
        return _game(options, rank, device)
    if options.model in ("bert", "gpt2"):
        return _language(options, rank, device)
    source = images.ImageFolder(options, rank, world) if options.data else images.GeneratedImages(options, rank)
    model = vision.classifier(options.model, options.size, source.classes).to(device)
    rate = options.learning_rate or 0.01
    return Classification(model, source, torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-4))


def _language(options, rank, device):
    shape = language.SHAPES[options.model, options.size]
    source = text.TextFiles(options, rank, shape) if options.data else text.GeneratedText(options, rank, shape)
    model = language.LanguageModel(options.model, options.size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), options.learning_rate or LANGUAGE_RATES[options.size])
    if options.model == "gpt2":
        return NextWord(model, source, optimizer)
    return MaskedWords(model, text.MaskedText(source, options, rank, shape), optimizer)


def _game(options, rank, device):
    network = control.ActorCritic if options.model == "a2c" else control.QNetwork
    side = games.screen_side(options.size)
    model = network(options.size, games.FRAMES, side, games.ACTIONS).to(device)
    if options.model == "a2c":
        optimizer = torch.optim.RMSprop(model.parameters(), options.learning_rate or 7e-4, alpha=0.99, eps=1e-5)
        return AdvantageActorCritic(model, games.Rollouts(options, rank, model, device), optimizer)
    optimizer = torch.optim.Adam(model.online.parameters(), options.learning_rate or 1e-3)
    return QLearning(model, games.Memory(options, rank, model, device), optimizer)

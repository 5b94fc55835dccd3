"""A small game as the data of A2C and DQN: a ball falls, and a paddle must catch it.

The screen shows the last four moments. Many games are played at once, with the actions of the model that is trained.
"""

import torch

from . import Source, generator

FRAMES = 4
ACTIONS = 3

#: By size: fields of the game, pixels of a field, most transitions that DQN remembers, and those before it begins.
SIZES = {"full": (21, 4, 50_000, 1_000), "small": (21, 2, 10_000, 500), "tiny": (6, 2, 512, 64)}

#: Weight of a reward one move later.
DISCOUNT = 0.99


def screen_side(size):
    """Returns the side of the screen in pixels."""
    fields, pixels, _, _ = SIZES[size]
    return fields * pixels


class Games:
    """Several games. The state of each is the row and column of the ball and the column of the paddle, for four moments."""

    def __init__(self, count, size, draw):
        self._fields, self._pixels, _, _ = SIZES[size]
        self.draw = draw
        self.moments = self._start(count)

    def _start(self, count):
        columns = torch.randint(0, self._fields, (count, 2), generator=self.draw)
        first = torch.cat([torch.zeros(count, 1, dtype=torch.long), columns], 1)
        return first.unsqueeze(1).repeat(1, FRAMES, 1)

    def move(self, actions):
        """Makes one move in each game. Returns the new moments, the rewards, and which games ended; those begin again."""
        now = self.moments[:, -1].clone()
        now[:, 0] += 1
        now[:, 2] = (now[:, 2] + actions - 1).clamp_(0, self._fields - 1)
        after = torch.cat([self.moments[:, 1:], now.unsqueeze(1)], 1)
        ended = now[:, 0] == self._fields - 1
        is_caught = (now[:, 1] - now[:, 2]).abs() <= 1
        rewards = torch.where(is_caught, 1.0, -1.0) * ended
        self.moments = torch.where(ended.view(-1, 1, 1), self._start(len(now)), after)
        return after, rewards, ended

    def screens(self, moments):
        """Returns what the model sees."""
        count, fields = len(moments), self._fields
        ball = moments[..., 0] * fields + moments[..., 1]
        paddle = (moments[..., 2:] + torch.tensor([-1, 0, 1])).clamp(0, fields - 1) + (fields - 1) * fields
        screen = torch.zeros(count, FRAMES, fields * fields)
        screen.scatter_(2, paddle, 1.0).scatter_(2, ball.unsqueeze(2), 1.0)
        screen = screen.view(count, FRAMES, fields, fields)
        return screen.repeat_interleave(self._pixels, 2).repeat_interleave(self._pixels, 3)


class GameSource(Source):
    """Plays games; the state includes the games and the random numbers."""

    def __init__(self, options, rank, model, device, count):
        super().__init__()
        self._model, self._device = model, device
        self._games = Games(count, options.size, generator(options.seed, rank, 0))

    def state(self):
        return dict(super().state(), moments=self._games.moments, random=self._games.draw.get_state())

    def load(self, state):
        super().load(state)
        self._games.moments = state["moments"]
        self._games.draw.set_state(state["random"])

    def _ask(self, moments):
        """Returns the answer of the model to what it sees."""
        with torch.no_grad():
            return self._model(self._games.screens(moments).to(self._device))


class Rollouts(GameSource):
    """Moves of the current policy, for A2C: screens, actions, and the discounted rewards that followed."""

    def __init__(self, options, rank, model, device):
        self._moves = min(8, options.batch_size)
        super().__init__(options, rank, model, device, -(-options.batch_size // self._moves))
        self._count = options.batch_size

    def batch(self):
        moments, actions, rewards, ends = [], [], [], []
        for _ in range(self._moves):
            logits, _ = self._ask(self._games.moments)
            action = torch.multinomial(logits.softmax(1).cpu(), 1, generator=self._games.draw).squeeze(1)
            moments.append(self._games.moments)
            actions.append(action)
            _, reward, ended = self._games.move(action)
            rewards.append(reward)
            ends.append(ended)
        future = self._ask(self._games.moments)[1].cpu()
        returns = []
        for reward, ended in zip(reversed(rewards), reversed(ends)):
            future = reward + DISCOUNT * future * ~ended
            returns.insert(0, future)
        screens = self._games.screens(torch.cat(moments)[: self._count])
        return screens, torch.cat(actions)[: self._count], torch.cat(returns)[: self._count]


class Memory(GameSource):
    """Remembered moves, for DQN: screens, actions, rewards, the screens after them, and whether the game ended."""

    #: Games at once, moves in each before a batch, and batches until few actions are random.
    GAMES, MOVES, EXPLORED = 8, 4, 1_000

    def __init__(self, options, rank, model, device):
        super().__init__(options, rank, model, device, self.GAMES)
        _, _, capacity, self._first = SIZES[options.size]
        self._count = options.batch_size
        self._moments = torch.zeros(capacity, 2, FRAMES, 3, dtype=torch.int16)
        #: Action, reward, and whether the game ended.
        self._results = torch.zeros(capacity, 3, dtype=torch.int8)
        self._written = 0

    def state(self):
        remembered = dict(old=self._moments.clone(), results=self._results.clone(), written=self._written)
        return dict(super().state(), **remembered)

    def load(self, state):
        super().load(state)
        self._moments, self._results, self._written = state["old"].clone(), state["results"].clone(), state["written"]

    def batch(self):
        while self._written < self._first:
            self._play(1.0)
        exploration = max(0.05, 1 - self.position / self.EXPLORED)
        for _ in range(self.MOVES):
            self._play(exploration)
        size = min(self._written, len(self._moments))
        chosen = torch.randint(0, size, (self._count,), generator=self._games.draw)
        moments, results = self._moments[chosen].long(), self._results[chosen]
        before, after = self._games.screens(moments[:, 0]), self._games.screens(moments[:, 1])
        return before, results[:, 0].long(), results[:, 1].float(), after, results[:, 2].bool()

    def _play(self, exploration):
        """Makes one move in each game and remembers it."""
        before, draw = self._games.moments, self._games.draw
        best = self._ask(before).argmax(1).cpu()
        others = torch.randint(0, ACTIONS, best.shape, generator=draw)
        actions = torch.where(torch.rand(best.shape, generator=draw) < exploration, others, best)
        after, rewards, ended = self._games.move(actions)
        at = (self._written + torch.arange(len(before))) % len(self._moments)
        self._moments[at] = torch.stack([before, after], 1).short()
        self._results[at] = torch.stack([actions, rewards.long(), ended.long()], 1).to(torch.int8)
        self._written += len(before)

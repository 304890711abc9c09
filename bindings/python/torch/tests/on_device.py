"""What the tests of device tensors do on a rank: its device, the current stream, tensors of the device."""

import torch
import torch.distributed as dist

import device

_devices = None


def here():
    """The devices' functions; this rank's device is the current one, with a stream of its own as the current stream."""
    global _devices
    if _devices is None:
        _devices = device.load()
        _devices.set_device(place_of(dist.get_rank()).index)
        _devices.set_stream(_devices.new_stream())
        # CUDA loads a kernel when it is first called, and may wait for all streams then: not while one is held.
        torch.empty(1000, device=place_of(dist.get_rank())).fill_(0)
    return _devices


def place_of(rank):
    """As the library chooses."""
    return torch.device(device.KIND, rank % _devices.device_count())


def place():
    here()
    return place_of(dist.get_rank())


def put(values):
    return torch.as_tensor(values, dtype=torch.float32).to(place())


def filled(n, value):
    return put(torch.full((n,), float(value)))


def same(t, expected):
    """Reading on the host is in the order of the current stream."""
    got = t.cpu()
    expected = torch.as_tensor(expected, dtype=got.dtype)
    assert torch.equal(got, expected.expand_as(got)), f"{got}, expected {expected}"


def current():
    return here().current_stream()


class held:
    """The current stream stands until the end of the block."""

    def __enter__(self):
        self.stream = current()
        here().hold(self.stream, True)
        return self

    def let_go(self):
        here().hold(self.stream, False)

    def __exit__(self, *_):
        self.let_go()


class on_stream:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.before = here().set_stream(self.stream)

    def __exit__(self, *_):
        here().set_stream(self.before)


def triangle():
    size = dist.get_world_size()
    return size * (size + 1) // 2

"""An interrupt ends a loop at any point: in the loader, in the queue, while the thread starts."""

import itertools
import os
import signal
import threading

from pinfeed.loaders.device_loader import DeviceLoader


def interrupt():
    while not done.wait(0.0005):
        os.kill(os.getpid(), signal.SIGINT)
        handled.wait(5)
        handled.clear()


def on_interrupt(*_):
    global armed
    handled.set()
    if armed:
        armed = False
        raise KeyboardInterrupt


armed, done, handled = False, threading.Event(), threading.Event()
signal.signal(signal.SIGINT, on_interrupt)
thread = threading.Thread(target=interrupt)
thread.start()
interrupts = 0
while interrupts < 300:
    loop = iter(DeviceLoader(itertools.count(), "cpu", prefetch=1))
    try:
        expected = 0
        armed = True
        while True:
            assert next(loop) == expected
            expected += 1
            armed = True
    except KeyboardInterrupt:
        interrupts += 1
    try:
        assert next(loop, "end") == "end"
    except AssertionError:  # raised by the handler outside of next(): the loop continues
        loop.close()
    assert next(loop, "end") == "end"
done.set()
thread.join()
for thread in threading.enumerate():
    if thread.name == "pinfeed" and thread.is_alive():  # or it arrived at the thread's start
        thread.join(30)  # an interrupt can arrive while the thread's end is awaited
        assert not thread.is_alive()

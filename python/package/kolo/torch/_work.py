"""Operations that have been started."""

import datetime
import functools
import threading
import weakref

import torch
import torch.distributed as dist

from .. import _native
from .._errors import Error, InvalidCall
from ._device_group import first_tensor
from ._tensors import has_its_values, writing


def seconds(timeout):
    """Returns a timeout of torch in seconds; None for its own default."""
    if isinstance(timeout, datetime.timedelta):
        timeout = timeout.total_seconds()
    return timeout if timeout and timeout > 0 else None


def future():
    """Returns a future to set to (value, exception), and the one that follows it with the value or the exception.

    `Future.set_exception` only has Python raise it: the C++ of DistributedDataParallel would take the exception for its
    gradients, and crash. A callback that raises ends the next future with an error for both."""
    begun = torch.futures.Future()
    return begun, begun.then(_native.settle)


def kept_works(set_work):
    """Returns the function by which torch gives a work to a reducer, in `DistributedDataParallel.join`, with the work kept
    for as long as the reducer. Once Python drops a work, the wait of torch's C++ no longer reaches our `wait`: it would
    never end."""
    kept = weakref.WeakKeyDictionary()

    @functools.wraps(set_work)
    def set_and_keep(reducer, work, *arguments, **named):
        set_work(reducer, work, *arguments, **named)
        kept[reducer] = work

    return set_and_keep


def backend_error(error):
    """Returns the exception of torch for one of Kolo; a wrong call stays a ValueError."""
    if isinstance(error, InvalidCall) or not isinstance(error, Error):
        return error
    raised = dist.DistBackendError(f"kolo: {error}")
    raised.operation, raised.culprit, raised.__cause__ = error.operation, error.culprit, error
    return raised


class Work(dist.Work):
    """An operation with its native handle, None if it is over. `after` copies the result to where it belongs
    and runs once, on whichever thread learns first that the operation is over."""

    def __init__(self, handle, value, after=None):
        super().__init__()
        self._handle, self._value, self._after, self._future = handle, value, after, None
        self._lock = None if after is None else threading.Lock()

    def _finish(self):
        if self._lock is not None:
            with self._lock:
                after, self._after = self._after, None
                if after is not None:
                    with writing(first_tensor([self._value])):
                        after()

    def wait(self, timeout=None):
        if self._handle is not None:
            try:
                done = self._handle.wait(seconds(timeout))
            except Error as error:
                raise backend_error(error) from None
            if not done:
                raise dist.DistBackendError(f"kolo: Timed out after {seconds(timeout):g} s of waiting for an operation")
        self._finish()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        if self._handle is not None and not self._handle.is_done():
            return False
        if self.exception() is None:
            self._finish()
        return True

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def exception(self):
        error = None if self._handle is None else self._handle.exception()
        return None if error is None else backend_error(error)

    def result(self):
        return self._value

    def get_future(self):
        if self._future is None:
            self._begun, self._future = future()
            if self._handle is None:
                self._resolve()
            else:
                self._handle.on_done(self._resolve)
        return self._future

    def _resolve(self):
        error = self.exception()
        try:
            if error is None:
                self._finish()
        except Exception as problem:
            error = problem.with_traceback(None)
        self._begun.set_result((self._value, error))


class Works(Work):
    """Several operations of one queue: the last one ends last."""

    def __init__(self, works, value):
        super().__init__(works[-1]._handle if works else None, value, after=lambda: [work._finish() for work in works])
        self._works = works

    def wait(self, timeout=None):
        for work in self._works:
            work.wait(timeout)
        return super().wait(timeout)


class ReceiveWork(dist.Work):
    """A message that was asked for. It is copied to its tensor when it is waited for."""

    def __init__(self, message, tensor, source, timeout, is_shut):
        """`is_shut` returns true once this process has left the group."""
        super().__init__()
        self._is_shut = is_shut
        self._message, self._tensor, self._source, self._timeout = message, tensor, source, timeout
        self._error, self._done = None, False

    def _poll(self, timeout):
        if not self._done and self._error is None:
            try:
                source = self._message.wait(timeout)
                if source is None:
                    return False
                tensor = self._tensor
                target = tensor if has_its_values(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
                self._message.copy_to(target.data_ptr(), target.nbytes)
                if target is not tensor:
                    with writing(tensor):
                        tensor.copy_(target)
                self._source, self._done, self._message = source, True, None
            except Error as error:
                self._error = backend_error(error)
                if self._is_shut():
                    self._error = dist.DistBackendError("kolo: this process has destroyed its group, and the message that it asked for "
                                                        "had not come; wait for it before destroy_process_group")
        return True

    def wait(self, timeout=None):
        limit = seconds(timeout) or self._timeout
        if not self._poll(limit):
            whom = "any rank" if self._source is None else f"rank {self._source}"
            raise dist.DistBackendError(f"kolo: Timed out after {limit:g} s: no message of {whom} has come")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._poll(0.0)

    def is_success(self):
        return self._done

    def exception(self):
        return self._error

    def result(self):
        return [self._tensor]

    def source_rank(self):
        return self._source

    def _source_rank(self):
        return self._source

    def get_future(self):
        begun, last = future()
        thread = threading.Thread(target=self._resolve, args=(begun,), name="kolo-receive", daemon=True)
        thread.start()
        return last

    def _resolve(self, begun):
        try:
            self.wait()
            begun.set_result(([self._tensor], None))
        except Exception as error:
            begun.set_result((None, error.with_traceback(None)))


dist.Reducer._set_forward_pass_work_handle = kept_works(dist.Reducer._set_forward_pass_work_handle)

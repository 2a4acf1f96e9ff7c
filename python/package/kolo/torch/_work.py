"""Operations that have been started."""

import datetime
import threading

import torch
import torch.distributed as dist

from .._errors import Error, InvalidCall


def seconds(timeout):
    """Returns a timeout of torch in seconds; None for its own default."""
    if isinstance(timeout, datetime.timedelta):
        timeout = timeout.total_seconds()
    return timeout if timeout and timeout > 0 else None


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
                    with torch.no_grad():
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
            self._future = torch.futures.Future()
            if self._handle is None:
                self._resolve()
            else:
                self._handle.on_done(self._resolve)
        return self._future

    def _resolve(self):
        error = self.exception()
        if error is not None:
            self._future.set_exception(error)
            return
        self._finish()
        self._future.set_result(self._value)


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

    def __init__(self, message, tensor, source, timeout):
        super().__init__()
        self._message, self._tensor, self._source, self._timeout = message, tensor, source, timeout
        self._error, self._done = None, False

    def _poll(self, timeout):
        if not self._done and self._error is None:
            try:
                source = self._message.wait(timeout)
                if source is None:
                    return False
                tensor = self._tensor
                target = tensor if tensor.is_contiguous() else torch.empty(tensor.shape, dtype=tensor.dtype)
                self._message.copy_to(target.data_ptr(), target.nbytes)
                if target is not tensor:
                    with torch.no_grad():
                        tensor.copy_(target)
                self._source, self._done, self._message = source, True, None
            except Error as error:
                self._error = backend_error(error)
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
        future = torch.futures.Future()
        thread = threading.Thread(target=self._resolve, args=(future,), name="kolo-receive", daemon=True)
        thread.start()
        return future

    def _resolve(self, future):
        try:
            self.wait()
            future.set_result([self._tensor])
        except Exception as error:
            future.set_exception(error)

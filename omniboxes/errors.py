"""Everything that can go wrong in the browser tier, as one small tree.

    OmniboxError
    ├── Unauthorized          401   no key, or the wrong one
    ├── InstanceNotFound      400   unknown, released or foreign instance
    ├── NodeNotFound          400   unknown node
    ├── InvalidLifetime       400   lifetime_mins out of range
    ├── EgressRefused         403   the address is refused by the egress policy
    ├── RouteNotFound         404   no such route
    ├── MethodNotAllowed      405   the route exists, the method does not
    ├── InstanceCrashed       410   the session's browser is gone; take a new lease
    ├── BodyTooLarge          413   the request body is over the limit
    ├── InvalidRequest        422   a field is missing, unknown or of the wrong type
    │   ├── UnknownCommand    422   no such command, or not exactly one
    │   ├── InvalidUrl        422   not an absolute http(s) URL
    │   ├── StaleMark         422   the label is unknown or its element is gone
    │   ├── NotInteractable   422   the element is there, but nothing can reach it
    │   └── ScriptFailed      422   the evaluated expression threw
    ├── NavigationFailed      422   Chromium could not load the page
    ├── InternalFault         500   a bug of ours, answered in the same shape
    ├── PoolExhausted         503   no free session           (retryable)
    ├── NodeUnavailable       503   a hop did not answer      (retryable)
    ├── PoolUnavailable       503   Redis is out of reach     (retryable)
    ├── RegistryUnavailable   503   the registry's Redis is   (retryable)
    └── DeadlineExceeded      504   the budget of the request ran out

Each class says its wire `code`, its HTTP status and whether the same request may
succeed later. `to_body` and `from_body` are the only two places that know the JSON.
`SetupError` stands apart: it never crosses the wire.
"""

from __future__ import annotations

from typing import Any, ClassVar

UNKNOWN_CODE = "unknown"


class SetupError(Exception):
    """The operator's set-up is wrong; the message is the one sentence that says what to do.

    Entry points print it without a traceback and exit with status 2.
    """


class OmniboxError(Exception):
    """Base of all errors that cross the wire."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def to_body(self) -> dict[str, Any]:
        """Return the JSON body every tier answers with."""
        return {"detail": self.detail, "code": self.code, "retryable": self.retryable}


class Unauthorized(OmniboxError):
    """The key is missing or wrong."""

    code = "unauthorized"
    status = 401


class InstanceNotFound(OmniboxError):
    """The instance is unknown, released or somebody else's."""

    code = "instance_not_found"
    status = 400


class NodeNotFound(OmniboxError):
    """The master knows no such node."""

    code = "node_not_found"
    status = 400


class InvalidLifetime(OmniboxError):
    """`lifetime_mins` is outside what the node grants."""

    code = "invalid_lifetime"
    status = 400


class EgressRefused(OmniboxError):
    """The egress policy refuses the address."""

    code = "egress_refused"
    status = 403


class RouteNotFound(OmniboxError):
    """There is no such route."""

    code = "route_not_found"
    status = 404


class MethodNotAllowed(OmniboxError):
    """The route does not take this method."""

    code = "method_not_allowed"
    status = 405


class InstanceCrashed(OmniboxError):
    """The browser of this session crashed; its lease is over."""

    code = "instance_crashed"
    status = 410


class BodyTooLarge(OmniboxError):
    """The request body is over the limit."""

    code = "body_too_large"
    status = 413


class InvalidRequest(OmniboxError):
    """The request does not say something we understand."""

    code = "invalid_request"
    status = 422


class UnknownCommand(InvalidRequest):
    """Not exactly one known command."""

    code = "unknown_command"


class InvalidUrl(InvalidRequest):
    """The URL cannot be visited as written."""

    code = "invalid_url"


class StaleMark(InvalidRequest):
    """The label is unknown, or its element has left the document."""

    code = "stale_mark"


class NotInteractable(InvalidRequest):
    """The element is in the document, but the action cannot reach it."""

    code = "not_interactable"


class ScriptFailed(InvalidRequest):
    """The evaluated expression threw."""

    code = "script_failed"


class NavigationFailed(OmniboxError):
    """Chromium could not load the page; the detail carries its reason."""

    code = "navigation_failed"
    status = 422


class InternalFault(OmniboxError):
    """An unexpected error; the log has the traceback under the request id."""

    code = "internal_fault"
    status = 500


class PoolExhausted(OmniboxError):
    """No session is free."""

    code = "pool_exhausted"
    status = 503
    retryable = True


class NodeUnavailable(OmniboxError):
    """A server behind this one did not answer."""

    code = "node_unavailable"
    status = 503
    retryable = True


class PoolUnavailable(OmniboxError):
    """The pool's store (Redis) is out of reach."""

    code = "pool_unavailable"
    status = 503
    retryable = True


class RegistryUnavailable(OmniboxError):
    """The registry of nodes (Redis) is out of reach."""

    code = "registry_unavailable"
    status = 503
    retryable = True


class DeadlineExceeded(OmniboxError):
    """The time budget of the request ran out."""

    code = "deadline_exceeded"
    status = 504


def _tree(cls: type[OmniboxError]) -> list[type[OmniboxError]]:
    return [cls, *(sub for child in cls.__subclasses__() for sub in _tree(child))]


BY_CODE: dict[str, type[OmniboxError]] = {cls.code: cls for cls in _tree(OmniboxError)[1:]}


def from_body(status: int, body: object) -> OmniboxError:
    """Rebuild the typed error from an answer's status and parsed JSON body.

    An answer that is not ours (a proxy's error page) becomes the nearest class for its status.
    """
    fields = body if isinstance(body, dict) else {}
    detail = str(fields.get("detail") or f"the server answered {status}")
    cls = BY_CODE.get(str(fields.get("code", UNKNOWN_CODE)))
    if cls is None:
        by_status = {c.status: c for c in reversed(list(BY_CODE.values()))}
        cls = by_status.get(status, InternalFault if status >= 500 else InvalidRequest)
    return cls(detail)

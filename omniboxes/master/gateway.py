"""The master's work behind its routes: grant a lease on the best node, relay the rest to its node.

A lease is asked of one node after the other until one grants it; everything else belongs to the
node that the caller names. Every hop has a deadline, the caller's own or the limit here. The limits
exceed those of the tiers behind, so that their typed answers arrive first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from omniboxes.common.hop import AVAILABLE_HEADER, Answer, Hop, RelayedAnswer, budget_s
from omniboxes.common.settings import Settings
from omniboxes.common.wire import Lease, LeaseOptions, NodeId, NodeLease
from omniboxes.errors import (
    DeadlineExceeded,
    NodeUnavailable,
    OmniboxError,
    PoolExhausted,
    from_body,
)
from omniboxes.master.bodies import RoutedCommand
from omniboxes.master.node_manager import NodeManager
from omniboxes.master.node_table import Node, NodeTable

logger = logging.getLogger(__name__)

NO_CAPACITY = "No available nodes with capacity to create new instance"
SLACK_S = 10.0
"""What a hop may take beyond the limit of the work behind it."""
RESET_LIMIT_S = 15.0


class Gateway:
    """Serves the master's routes over the nodes of one manager."""

    def __init__(self, settings: Settings, hop: Hop, manager: NodeManager) -> None:
        self.manager = manager
        self._hop = hop
        self._command_limit_s = settings.command_timeout_s + SLACK_S
        self._attempt_limit_s = settings.get_wait_s + SLACK_S

    @property
    def _table(self) -> NodeTable:
        return self.manager.table

    async def lease(
        self, request: Request, params: Mapping[str, str], options: LeaseOptions | None
    ) -> Response:
        """Return the answer of the first node that grants the lease or calls the request wrong.

        Raises PoolExhausted when none has room, or what the nodes say when no room is not the
        reason; DeadlineExceeded when the caller's time runs out before all were asked.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget_s(request, 2 * self._attempt_limit_s)
        tried: dict[NodeId, OmniboxError] = {}
        while (left_s := deadline - loop.time()) > 0:
            with self._table.choose(tried) as node:
                if node is None:
                    raise _refusal(tried.values())
                limit_s = min(left_s, self._attempt_limit_s)
                try:
                    answer = await self._ask(node, params, options, limit_s)
                    return await self._granted(request, node, answer)
                except OmniboxError as exc:
                    logger.info("Node %s grants no lease: %s", node.id, exc.detail)
                    tried[node.id] = exc
        raise DeadlineExceeded("No node granted a session in time")

    async def _ask(
        self,
        node: Node,
        params: Mapping[str, str],
        options: LeaseOptions | None,
        deadline_s: float,
    ) -> Answer:
        """Ask a node for a lease; raises what keeps it from answering, or its own refusal."""
        try:
            answer = await self._hop.fetch(
                "POST",
                f"{node.url}/get",
                deadline_s=deadline_s,
                params=params,
                body=options.model_dump_json(exclude_unset=True).encode() if options else None,
                headers={"content-type": "application/json"} if options else None,
            )
        except NodeUnavailable:
            self._table.record_failure(node)
            raise
        count = answer.headers.get(AVAILABLE_HEADER)
        if answer.status >= 500:
            refusal = from_body(answer.status, answer.json())
            is_full = isinstance(refusal, PoolExhausted)
            self._table.record_available(node, count, otherwise=0 if is_full else None)
            raise refusal
        granted = node.reported - 1 if answer.status < 400 else None
        self._table.record_available(node, count, otherwise=granted)
        return answer

    async def _granted(self, request: Request, node: Node, answer: Answer) -> Response:
        if answer.status >= 400:
            return _as_is(answer)
        try:
            granted = NodeLease.model_validate_json(answer.body)
        except ValidationError as exc:
            raise NodeUnavailable("The node's answer is no lease") from exc
        if await request.is_disconnected():
            # Nobody is left to take the lease, so it goes back at once, not when it expires.
            await self._release(node, granted.instance_id)
        lease = Lease(instance_id=granted.instance_id, node=node.id)
        return JSONResponse(lease.model_dump())

    async def _release(self, node: Node, instance_id: str) -> None:
        params = {"instance_id": instance_id}
        try:
            await self._hop.json(
                "POST", f"{node.url}/reset", deadline_s=RESET_LIMIT_S, params=params
            )
        except OmniboxError as exc:
            logger.warning("The lease of a client that left stays until it expires: %s", exc.detail)

    async def reset(self, request: Request, node: str, instance_id: str) -> Response:
        """Release a session; the node's count is known again at once."""
        found = self._table.find(node)
        limit_s = budget_s(request, RESET_LIMIT_S)
        answer = await self._relay(request, found, {"instance_id": instance_id}, limit_s)
        self._table.record_available(found, answer.upstream_headers.get(AVAILABLE_HEADER))
        return answer

    async def relay(self, request: Request, node: str, params: Mapping[str, str]) -> Response:
        """Pass a request without a body to the same route of its node."""
        limit_s = budget_s(request, self._command_limit_s)
        return await self._relay(request, self._table.find(node), params, limit_s)

    async def relay_command(self, request: Request, command: RoutedCommand) -> Response:
        """Pass a command to the same route of its node; the answer is streamed through."""
        limit_s = budget_s(request, self._command_limit_s + command.extra_s)
        params = {"instance_id": command.instance_id}
        node = self._table.find(command.node)
        return await self._relay(request, node, params, limit_s, command.body)

    async def _relay(
        self,
        request: Request,
        node: Node,
        params: Mapping[str, str],
        limit_s: float,
        body: bytes | None = None,
    ) -> RelayedAnswer:
        url = node.url + request.scope["path"]
        return await self._hop.relay(request, url, deadline_s=limit_s, params=params, body=body)


def _as_is(answer: Answer) -> Response:
    return Response(answer.body, answer.status, media_type=answer.headers.get("content-type"))


def _refusal(reasons: Iterable[OmniboxError]) -> OmniboxError:
    # "Full" is the answer unless no node says so and one has something else to say.
    said = [reason for reason in reasons if not isinstance(reason, NodeUnavailable)]
    if not said or any(isinstance(reason, PoolExhausted) for reason in said):
        return PoolExhausted(NO_CAPACITY)
    return said[0]

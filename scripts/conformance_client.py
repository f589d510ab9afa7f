"""Consumes with the client that openapi-python-client has generated from the document; scripts/conformance runs it.

usage: conformance_client.py URL QUEUE     with DUEQ_TOKEN, and two due messages in the queue
Each call is typed: the fields of a claim, a delivery, an extension and each settlement are those of the document.
"""
import os, sys

from dueq_client import AuthenticatedClient, models
from dueq_client.api.consumers import claim_messages, extend_deliveries, settle_deliveries

url, queue = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=os.environ["DUEQ_TOKEN"], raise_on_unexpected_status=True)


def act(call, **fields):
    answer = call.sync(queue, client=client, **fields)
    assert not isinstance(answer, models.Problem), answer
    return answer


grant = act(claim_messages, body=models.Claim(max_=2, lease_ms=60_000, wait_ms=10_000, claim_id="generated"))
assert [delivery.attempt for delivery in grant.deliveries] == [1, 1] and not grant.repeated, grant
first, second = grant.deliveries
extensions = models.NewExtensions([models.NewExtension(handle=one.handle, lease_ms=120_000) for one in grant.deliveries])
extended = act(extend_deliveries, body=extensions)
assert extended.done == 2 and extended.results[0].leased_until_ms > first.leased_until_ms, extended
settled = act(settle_deliveries, body=models.NewSettlements([
    models.AckSettlement(handle=first.handle, action=models.AckSettlementAction.ACK),
    models.RetrySettlement(handle=second.handle, action=models.RetrySettlementAction.RETRY, delay="1h", error="busy"),
]))
assert [result.outcome for result in settled.results] == ["done", "scheduled"], settled
assert settled.results[1].due_ms > second.due_ms, settled
print("a generated client claimed, extended and settled")

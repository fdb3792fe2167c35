"""An HTTP client that survives: retries, a total timeout, and failover over two servers, one of which is ill.

Run it: python examples/http_client.py        (needs holdfast[httpx]; uses 127.0.0.1 only)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from holdfast import Breaker, EndpointPool, Retry, Timeout, consecutive
from holdfast.integrations.httpx import GuardTransport, http_guard


class Shop(BaseHTTPRequestHandler):
    """Answers with the status that its server is told to give."""

    protocol_version = "HTTP/1.1"
    status = 200

    def do_GET(self) -> None:
        body = f"port {self.server.server_port}".encode()  # type: ignore[attr-defined]  # of the ThreadingHTTPServer
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class IllShop(Shop):
    status = 503


@contextmanager
def serving(handler: type[Shop]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> None:
    with serving(IllShop) as ill, serving(Shop) as well:
        pool = EndpointPool([ill, well], choose="first", breaker=Breaker(consecutive(3), open_for=30), name="shops")
        guard = http_guard("orders", Retry(attempts=3, base=0.1), Timeout(total=5))
        # "shop" is the name that both servers share; other hosts go their usual way.
        mounts = {"http://shop": GuardTransport(guard, pool=pool)}
        with httpx.Client(mounts=mounts) as client:
            for number in range(1, 6):
                response = client.get("http://shop/orders")
                states = {name: str(circuit.state) for name, circuit in pool.circuits().items()}
                print(f"request {number}: {response.status_code} from {response.text}, circuits {states}")


if __name__ == "__main__":
    main()

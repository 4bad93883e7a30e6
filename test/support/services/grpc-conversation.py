"""A real gRPC server, or a real client that asks it through a load balancer's port and prints what it got."""

import json
import sys
import time
from concurrent import futures

import grpc

SERVICE = "krater.test.Echo"


def upper(request, _context):
    return request.upper()


def pieces(request, _context):
    """As many messages as asked for, with a pause of milliseconds before the last."""
    count, pause = json.loads(request)
    for number in range(count):
        if number == count - 1:
            time.sleep(pause / 1000)
        yield str(number).encode()


def both(requests, _context):
    for request in requests:
        yield request.upper()


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    handlers = {
        "Upper": grpc.unary_unary_rpc_method_handler(upper),
        "Pieces": grpc.unary_stream_rpc_method_handler(pieces),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


def attempt(call):
    try:
        return call()
    except grpc.RpcError as error:
        return error.code().name


def ask(port, pause):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        one = channel.unary_unary(f"/{SERVICE}/Upper")
        some = channel.unary_stream(f"/{SERVICE}/Pieces")
        talk = channel.stream_stream(f"/{SERVICE}/Both")
        many = json.dumps([1000, 0]).encode()
        late = json.dumps([2, pause]).encode()
        print(
            json.dumps(
                {
                    "unary": attempt(lambda: one(b"hello", timeout=20).decode()),
                    "large": attempt(lambda: len(one(b"x" * 1_000_000, timeout=20))),
                    "stream": attempt(lambda: sum(1 for _ in some(many, timeout=20))),
                    "both": attempt(lambda: [m.decode() for m in talk(iter([b"a", b"b"]), timeout=20)]),
                    "late": attempt(lambda: [m.decode() for m in some(late, timeout=20)]),
                }
            )
        )


if sys.argv[1] == "serve":
    serve()
else:
    ask(sys.argv[2], int(sys.argv[3]))

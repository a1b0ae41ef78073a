"""A publisher of KV events over libzmq, as vLLM 0.32 and SGLang publish: publisher.py [--old] [--held N]

Prints the ports of its PUB and ROUTER sockets, then publishes one batch for each line of its input: "send", or "drop" for one that
reaches no subscriber. --old answers replays without a topic, as releases before 0.32 do; --held bounds what it replays.
"""
import collections
import sys
import threading

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)
old = "--old" in sys.argv
held = int(sys.argv[sys.argv.index("--held") + 1]) if "--held" in sys.argv else 10_000
context = zmq.Context.instance()
pub, replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (pub, replay)]
print(*ports, flush=True)
buffer = collections.deque(maxlen=held)
wanted = collections.deque()


def read():
    for line in sys.stdin:
        wanted.append(line.strip())
    wanted.append("end")


threading.Thread(target=read, daemon=True).start()
seq = 0
while True:
    if replay.poll(0):
        client, _, start = replay.recv_multipart()
        start = int.from_bytes(start, "big")
        for number, payload in buffer:
            if number >= start:
                topic = [] if old else [b"kv@p"]
                replay.send_multipart([client, b"", *topic, number.to_bytes(8, "big"), payload])
        replay.send_multipart([client, b"", *([] if old else [b""]), END, b""])
    if not wanted:
        threading.Event().wait(0.01)
        continue
    word = wanted.popleft()
    if word == "end":
        break
    event = {"type": "BlockStored", "block_hashes": [seq + 1], "parent_block_hash": seq or None,
             "token_ids": list(range(seq * 16, seq * 16 + 16)), "block_size": 16, "lora_id": None, "medium": "GPU",
             "lora_name": None}
    payload = msgspec.msgpack.encode([1_800_000_000.5 + seq, [event], 0])
    if word == "send":
        pub.send_multipart([b"kv@p", seq.to_bytes(8, "big"), payload])
    buffer.append((seq, payload))
    seq += 1

"""The file store of a real engine under get and set, one burst a line of standard input.

It is started as a server is, so that whoever looks for engines finds one. `N` sets N pages that are new and gets each of
them; the answer is seconds by the clock and seconds of processor time. The pages are removed outside of the measurement.
"""
import argparse
import itertools
import os
import sys
import time

import shim

parser = argparse.ArgumentParser()
for flag in ("--model-path", "--served-model-name", "--tp-size", "--page-size", "--hicache-storage-backend"):
    parser.add_argument(flag, default="")
parser.add_argument("--enable-hierarchical-cache", action="store_true")
model = parser.parse_args().model_path
PAGE_BYTES = int(os.environ["PAGE_BYTES"])

torch = shim.sglang()
import sglang.srt.mem_cache.hicache_storage as hs  # noqa: E402

store = os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"]
config = hs.HiCacheStorageConfig(
    tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
    enable_storage_metrics=False, is_page_first_layout=False, model_name=model, extra_config=None)
pages = hs.HiCacheFile(config, file_path=store)
value = torch.full((PAGE_BYTES,), 1, dtype=torch.uint8)
buffer = torch.zeros(PAGE_BYTES, dtype=torch.uint8)
numbers = itertools.count()
print("ready", flush=True)
for line in sys.stdin:
    keys = [f"{next(numbers):064x}" for _ in range(int(line))]
    clock, processor = time.perf_counter(), time.process_time()
    for key in keys:
        if not pages.set(key, value):
            sys.exit(f"{key} was not stored")
        if pages.get(key, buffer) is None:
            sys.exit(f"{key} is not there")
    print(time.perf_counter() - clock, time.process_time() - processor, flush=True)
    for name in os.listdir(store):
        os.remove(os.path.join(store, name))

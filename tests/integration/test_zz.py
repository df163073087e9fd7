import asyncio,time,json,io
from node_rig import RunningNode
async def test_stall(node):
    worst=0.0; stop=False
    async def watch():
        nonlocal worst
        while not stop:
            t=time.perf_counter(); await asyncio.sleep(0.001); worst=max(worst,time.perf_counter()-t)
    data=json.dumps({"tasks":[{"type":"a","run_at":"2040-01-01T00:00:00Z","payload":{"n":i}} for i in range(10000)]}).encode()
    w=asyncio.create_task(watch())
    t=time.time(); r=await node.call("POST","/v1/tasks/batch",data); print(r.status,"took",time.time()-t,"worst stall",worst)
    stop=True; await w

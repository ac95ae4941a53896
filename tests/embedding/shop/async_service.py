"""A service that takes orders whenever they come, from asyncio; one thread drives them all."""

import asyncio
import threading
from collections.abc import Iterable

from sagactl import Driver, Ending, Project, Saga


async def place(driver: Driver, saga: Saga, sku: str, amount: int) -> Ending:
    """Start an order and wait for its end; the event loop goes on meanwhile."""
    run_id = await asyncio.to_thread(driver.start, saga, {"sku": sku, "amount": amount})
    return await asyncio.to_thread(driver.wait, run_id, timeout_seconds=60)


async def take_orders(project: Project, amounts: Iterable[int]) -> list[Ending]:
    """Place orders side by side while a thread drives them, then stop it."""
    order = project.load("order")
    with project.driver() as driver:
        serving = threading.Thread(target=driver.serve)
        serving.start()
        endings = await asyncio.gather(*(place(driver, order, f"book-{n}", n) for n in amounts))
        driver.interrupt()
        serving.join()
    return endings

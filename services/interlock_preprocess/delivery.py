"""How the patches of a picture reach who asked for them: header, pieces as their rows are done, trailer."""

from interlock_preprocess.destinations import Destination, Send
from interlock_preprocess.frames import header_frame, trailer_frame
from interlock_preprocess.subscription import Subscription


async def deliver(picture: Subscription, image_id: str, destination: Destination, send: Send, send_last: Send) -> None:
    """Answer with one picture: every piece of its patches as soon as it is there.

    Args:
        picture: its patches, made or in the making.
        image_id: its id in the frames.
        destination: where the patches go.
        send: takes the frames but the last.
        send_last: takes the trailer.

    Raises:
        ImageFault: the picture failed or was stopped, or the destination cannot take its patches.
    """
    try:
        cut = await picture.until_cut()
        plan, patch_size = cut.plan, picture.request.profile.patch_size
        await destination.begin(plan.canvas_width * plan.canvas_height * 3 * 2)
        await send(header_frame(image_id, plan, patch_size, (cut.width, cut.height), cut.source_format))
        patch_count = plan.grid_width * plan.grid_height
        for first in range(0, patch_count, destination.most_patches):
            patches = await picture.patches(first, min(first + destination.most_patches, patch_count))
            await destination.put(first, patches)
        destination.release()  # before the caller can know that it is over, and use the same place again
        await send_last(trailer_frame(image_id, await picture.until_done()))
    finally:
        destination.release()

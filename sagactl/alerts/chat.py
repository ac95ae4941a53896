"""Chat, mail and pagers, by Apprise: one library for a hundred services, imported when something is to be said."""

from __future__ import annotations

import logging
from urllib.parse import parse_qs

from sagactl.alerts.sending import SendError


def notify(url: str, title: str, body: str, *, is_resolution: bool) -> None:
    """Say it by the service that *url* names; raises SendError, without what the url holds."""
    try:
        import apprise
    except ImportError:
        raise SendError("Apprise is not installed: pip install 'sagactl[alerts]'") from None
    if _skips_verification(url):
        raise SendError("certificates are always verified: take verify=no out of the url")
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its messages may name what is secret in a url
    asset = apprise.AppriseAsset(app_id="sagactl", app_desc="sagactl", secure_logging=True, async_mode=False)
    service = apprise.Apprise(asset=asset)
    if not service.add(url):
        raise SendError("Apprise can't read the url")
    kind = apprise.NotifyType.SUCCESS if is_resolution else apprise.NotifyType.WARNING
    if not service.notify(title=title, body=body, notify_type=kind, body_format=apprise.NotifyFormat.TEXT):
        raise SendError(f"the service that Apprise knows as {_name_service(url)} did not take it")


def _skips_verification(url: str) -> bool:
    wanted = parse_qs(url.partition("?")[2]).get("verify", ["yes"])
    return any(value.strip().lower() in {"no", "n", "0", "false", "f", "off"} for value in wanted)


def _name_service(url: str) -> str:
    scheme = url.partition("://")[0]
    return scheme if scheme.isalnum() and len(scheme) < 20 else "unknown"

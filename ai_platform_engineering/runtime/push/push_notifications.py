"""The push notifications of a server: the configs of its tasks, and the delivery of what is queued."""

from ai_platform_engineering.core.push_settings import PushSettings
from ai_platform_engineering.runtime.log.push_store import PushLimits
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.push.dispatcher import PushDispatcher
from ai_platform_engineering.runtime.push.push_configs import PushConfigs
from ai_platform_engineering.runtime.push.receiver_client import ReceiverClient
from ai_platform_engineering.runtime.server.signing_keys import SigningKeys


class PushNotifications:
    """`configs` is None where notifications are switched off: nothing is queued or sent then."""

    def __init__(self, run_log: RunLog, settings: PushSettings, keys: SigningKeys, issuer: str) -> None:
        run_log.push.limits = PushLimits.from_settings(settings)
        self.configs: PushConfigs | None = None
        self._dispatcher: PushDispatcher | None = None
        if settings.enabled:
            client = ReceiverClient(settings)
            self.configs = PushConfigs(run_log.push, client)
            self._dispatcher = PushDispatcher(run_log, settings, client, keys, issuer)

    def start(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.start()

    async def stop(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.stop()

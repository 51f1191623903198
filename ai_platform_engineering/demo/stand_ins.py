"""The stand-ins of the demo, in the order in which they are listed."""

from ai_platform_engineering.demo.argocd.app import STAND_IN as ARGOCD
from ai_platform_engineering.demo.estate.stand_in import StandIn

STAND_INS: tuple[StandIn, ...] = (ARGOCD,)

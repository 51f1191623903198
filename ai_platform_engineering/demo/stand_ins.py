"""The stand-ins of the demo, in the order in which they are listed."""

from ai_platform_engineering.demo.argocd.app import STAND_IN as ARGOCD
from ai_platform_engineering.demo.confluence.app import STAND_IN as CONFLUENCE
from ai_platform_engineering.demo.estate.stand_in import StandIn
from ai_platform_engineering.demo.github.app import STAND_IN as GITHUB
from ai_platform_engineering.demo.jira.app import STAND_IN as JIRA
from ai_platform_engineering.demo.kubernetes.app import STAND_IN as KUBERNETES
from ai_platform_engineering.demo.pagerduty.app import STAND_IN as PAGERDUTY

STAND_INS: tuple[StandIn, ...] = (ARGOCD, KUBERNETES, GITHUB, JIRA, CONFLUENCE, PAGERDUTY)

"""The systems that the scripted investigator asks, in the order of its plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoSystem:
    """A system behind an agent; `question` is the step of the plan that asks it."""

    agent: str
    title: str
    question: str


ARGOCD = DemoSystem("argocd", "Argo CD", "What is deployed of {service}, and is it healthy?")
KUBERNETES = DemoSystem("kubernetes", "Kubernetes", "What do the pods of {service} say?")
PAGERDUTY = DemoSystem("pagerduty", "PagerDuty", "Is there an incident of {service}?")
JIRA = DemoSystem("jira", "Jira", "Which tickets mention {service}?")
CONFLUENCE = DemoSystem("confluence", "Confluence", "Is there a runbook for {service}?")
GITHUB = DemoSystem("github", "GitHub", "What did the deployed change of {service} do?")

SYSTEMS = (ARGOCD, KUBERNETES, PAGERDUTY, JIRA, CONFLUENCE, GITHUB)

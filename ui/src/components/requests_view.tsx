// Forms and approvals of a run: those that wait, and what became of the others.
import type { Approval, Form, InputResolved } from "../generated/events.ts";
import type { Transcript } from "../events/transcript.ts";
import type { Turn } from "../state/turn.ts";
import { t } from "../texts.ts";
import { ApprovalCard } from "./approval_card.tsx";
import { FormCard } from "./form_card.tsx";
import { CheckIcon, CrossIcon } from "./icons.tsx";

interface RequestsProps {
  turn: Turn;
  isReadOnly?: boolean;
  onDrop?: (() => void) | undefined;
}

export function Requests({ turn, isReadOnly = false, onDrop }: RequestsProps) {
  const transcript = turn.transcript.value;
  return (
    <>
      {!isReadOnly &&
        transcript.requests.map(request => {
          const wrong = transcript.wrong[request.request_id] ?? {};
          return request.asked.type === "form" ? (
            <FormCard
              key={request.request_id}
              form={request.asked satisfies Form}
              wrong={wrong}
              onAnswer={values => turn.answer({ [request.request_id]: values })}
            />
          ) : (
            <ApprovalCard
              key={request.request_id}
              agent={request.agent}
              approval={request.asked satisfies Approval}
              wrong={wrong}
              onAnswer={decision => turn.answer({ [request.request_id]: decision })}
            />
          );
        })}
      {!isReadOnly && transcript.held !== null && (
        <div class="held" role="status">
          <p dir="auto">{t.held(transcript.held)}</p>
          {onDrop !== undefined && (
            <button type="button" onClick={onDrop}>
              {t.dropAndAsk}
            </button>
          )}
        </div>
      )}
    </>
  );
}

export function ResolvedRequests({ transcript }: { transcript: Transcript }) {
  return (
    <>
      {transcript.resolved.map(resolved => (
        <Resolved key={resolved.request_id} resolved={resolved} />
      ))}
    </>
  );
}

function Resolved({ resolved }: { resolved: InputResolved }) {
  const isGiven = ["answered", "approved", "edited"].includes(resolved.resolution);
  return (
    <p class={`resolved ${isGiven ? "resolved-given" : ""}`}>
      {isGiven ? <CheckIcon /> : <CrossIcon />}
      <span>
        {t.resolved[resolved.resolution]} {resolved.by && t.by(resolved.by)}
      </span>
    </p>
  );
}

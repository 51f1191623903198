// Forms and approvals of a run: those that wait, and what became of the others.
import type { Approval, Form } from "../generated/events.ts";
import type { Turn } from "../state/turn.ts";
import { t } from "../texts.ts";
import { ApprovalCard } from "./approval_card.tsx";
import { FormCard } from "./form_card.tsx";

export function Requests({ turn }: { turn: Turn }) {
  const transcript = turn.transcript.value;
  return (
    <>
      {transcript.resolved.map(resolved => (
        <p class="resolved" key={resolved.request_id}>
          {t.resolved[resolved.resolution]} {resolved.by && t.by(resolved.by)}
        </p>
      ))}
      {transcript.requests.map(request => {
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
    </>
  );
}

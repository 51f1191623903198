// The inbox: everything that waits for me, in all conversations, answered in place.
import { useEffect, useState } from "preact/hooks";
import { InboxList } from "../components/inbox/inbox_list.tsx";
import { RequestPanel } from "../components/inbox/request_panel.tsx";
import { Empty, LoadingRows } from "../components/parts/states.tsx";
import { View } from "../components/parts/view.tsx";
import { InboxIcon } from "../components/parts/view_icons.tsx";
import { isLoaded, loadInbox, problem, waiting, type WaitingRequest } from "../state/inbox.ts";
import { t } from "../texts.ts";

export function InboxView({ id }: { id: string | null }) {
  const [answered, setAnswered] = useState<WaitingRequest[]>([]); // they stay until the view is left
  const [firstId, setFirstId] = useState<string | null>(null);
  useEffect(() => void loadInbox(), []);
  const open = waiting.value.filter(row => answered.every(other => other.request_id !== row.request_id));
  const rows = [...answered, ...open];
  useEffect(() => {
    if (firstId === null && rows.length > 0) setFirstId(rows[0]!.request_id);
  }, [rows.length]);
  const shownId = id ?? firstId;
  const selected = rows.find(row => row.request_id === shownId) ?? null;
  const keep = (row: WaitingRequest) => setAnswered([row, ...answered.filter(other => other !== row)]);
  return (
    <View
      title={t.nav.inbox}
      hint={t.views.inbox.hint}
      count={isLoaded.value ? open.length : null}
      problem={problem.value}
      onRetry={() => void loadInbox()}
      isWide
    >
      {!isLoaded.value && problem.value === null && <LoadingRows />}
      {isLoaded.value && rows.length === 0 && (
        <Empty icon={<InboxIcon />} title={t.inboxEmpty}>
          <p>{t.views.inbox.emptyHint}</p>
        </Empty>
      )}
      {rows.length > 0 && (
        <div class={`split ${id === null ? "" : "split-open"}`}>
          <InboxList rows={rows} answered={answered} current={shownId} />
          {selected === null ? (
            <div class="split-detail">{shownId !== null && <Empty title={t.views.inbox.gone} />}</div>
          ) : (
            <RequestPanel
              key={selected.request_id}
              row={selected}
              isChosen={id !== null}
              onAnswered={() => keep(selected)}
            />
          )}
        </div>
      )}
    </View>
  );
}

// The text of a document, page by page.
import { useEffect, useState } from "preact/hooks";
import { describeError, get } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { LoadingRows, ProblemNote } from "../parts/states.tsx";
import { Dialog } from "../shell/dialog.tsx";
import { TrashIcon } from "../parts/view_icons.tsx";
import { deleteDocument, type DocumentPage, UPLOADS } from "./knowledge.ts";

interface DocumentProps {
  documentId: string;
  onDeleted(): void;
  onClose(): void;
}

export function DocumentDialog({ documentId, onDeleted, onClose }: DocumentProps) {
  const [pages, setPages] = useState<DocumentPage[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const load = async (offset: number) => {
    try {
      const page = await get<DocumentPage>(`/v1/documents/${encodeURIComponent(documentId)}?offset=${offset}`);
      setPages(all => [...all, page]);
      setProblem(null);
    } catch (error) {
      setProblem(describeError(error));
    }
  };
  useEffect(() => void load(0), []);
  const remove = async () => {
    try {
      await deleteDocument(documentId);
      onDeleted();
    } catch (error) {
      setProblem(describeError(error));
    }
  };
  const first = pages[0];
  const nextOffset = pages.at(-1)?.next_offset ?? null;
  return (
    <Dialog label={first?.title || documentId} class="dialog-wide" onClose={onClose}>
      {problem !== null && <ProblemNote text={problem} />}
      {first === undefined && problem === null && <LoadingRows />}
      {first !== undefined && (
        <p class="facts">
          <span class="tag">{first.datasource}</span>
          <span>{t.views.knowledge.characters(first.total_chars)}</span>
          {first.link !== null && <SourceLink link={first.link} />}
          {first.missing && <span class="fact-warn">{first.missing}</span>}
          {first.datasource === UPLOADS && (
            <button type="button" class="small danger" onClick={() => void remove()}>
              <TrashIcon /> {t.remove}
            </button>
          )}
        </p>
      )}
      <div class="document document-text" tabIndex={0} dir="auto">
        {pages.map(page => (
          <span key={page.offset}>{page.text}</span>
        ))}
      </div>
      {nextOffset !== null && (
        <button type="button" onClick={() => void load(nextOffset)}>
          {t.loadMore}
        </button>
      )}
    </Dialog>
  );
}

function SourceLink({ link }: { link: string }) {
  if (!/^https?:/i.test(link)) return <code>{link}</code>;
  return (
    <a href={link} target="_blank" rel="noopener noreferrer nofollow">
      {link}
    </a>
  );
}

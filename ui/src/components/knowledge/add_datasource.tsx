// Adds to the knowledge base: files by upload, a folder of the server, a site, or a git repository.
import { useState } from "preact/hooks";
import { describeError } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { ChoiceBar } from "../parts/choice_bar.tsx";
import { ProblemNote } from "../parts/states.tsx";
import { TextField } from "../parts/text_field.tsx";
import { Dialog } from "../shell/dialog.tsx";
import { addDatasource, type NewDatasource } from "./knowledge.ts";
import { UploadArea } from "./upload_area.tsx";

type Way = "upload" | "folder" | "site" | "git";

const WAYS: Way[] = ["upload", "folder", "site", "git"];
const INTERVALS = ["", "1h", "1d", "7d"] as const;

interface AddProps {
  onAdded(): void;
  onClose(): void;
}

export function AddDatasourceDialog({ onAdded, onClose }: AddProps) {
  const [way, setWay] = useState<Way>("upload");
  const texts = t.views.knowledge;
  const choices = WAYS.map(name => ({ value: name, label: texts.ways[name] }));
  return (
    <Dialog label={texts.add} class="dialog-middle" onClose={onClose}>
      <ChoiceBar label={texts.from} choices={choices} value={way} onChoose={setWay} />
      {way === "upload" ? (
        <UploadArea onUploaded={onAdded} />
      ) : (
        <LocationForm
          key={way}
          way={way}
          onAdded={() => {
            onAdded();
            onClose();
          }}
        />
      )}
    </Dialog>
  );
}

function LocationForm({ way, onAdded }: { way: Exclude<Way, "upload">; onAdded(): void }) {
  const [location, setLocation] = useState("");
  const [name, setName] = useState("");
  const [every, setEvery] = useState<string>("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const texts = t.views.knowledge;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await addDatasource(describeSource(way, location, name, every));
      onAdded();
    } catch (error) {
      setProblem(describeError(error));
      setBusy(false);
    }
  };
  return (
    <form onSubmit={event => void submit(event)}>
      <TextField id="kb-location" label={texts.locations[way]} hint={texts.hints[way]} value={location} onInput={setLocation} />
      <div class="field-pair">
        <TextField id="kb-name" label={texts.nameOptional} value={name} onInput={setName} />
        <div class="field">
          <label for="kb-every">{texts.refreshEvery}</label>
          <select id="kb-every" value={every} onChange={event => setEvery(event.currentTarget.value)}>
            {INTERVALS.map(value => (
              <option key={value} value={value}>
                {texts.intervals[value]}
              </option>
            ))}
          </select>
        </div>
      </div>
      {problem !== null && <ProblemNote text={problem} />}
      <div class="buttons">
        <button type="submit" class="primary" disabled={isBusy || !location.trim()}>
          {t.add}
        </button>
      </div>
    </form>
  );
}

/** A git repository is said to be one: its address may look like that of a site. */
function describeSource(way: Way, location: string, name: string, every: string): NewDatasource {
  const source: NewDatasource = { location: location.trim() };
  if (name.trim()) source.name = name.trim();
  if (every) source.every = every;
  if (way === "git") source.options = { kind: "git" };
  return source;
}

// What a first start lacks, in short, for the empty conversation; nothing when all is there or it is put aside.
import { useState } from "preact/hooks";
import { useResource } from "../../state/resource.ts";
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { CrossIcon, DotIcon } from "../icons.tsx";
import { Link } from "../link.tsx";
import { openSteps, type Setup, SETUP_PATH } from "./setup.ts";

const KEY = "caipe.setup";

export function SetupCard() {
  const [isAside, setAside] = useState(() => localStorage.getItem(KEY) !== null);
  const { value } = useResource<Setup>(isAside ? null : SETUP_PATH);
  if (isAside || value === null) return null;
  const steps = openSteps(value);
  if (steps.length === 0) return null;
  const putAside = () => {
    localStorage.setItem(KEY, "aside");
    setAside(true);
  };
  return (
    <aside class="setup-card" aria-label={t.views.setup.title}>
      <div class="setup-card-head">
        <h2>{t.views.setup.cardTitle}</h2>
        <button type="button" class="quiet" aria-label={t.views.setup.aside} onClick={putAside}>
          <CrossIcon />
        </button>
      </div>
      <ul>
        {steps.map(step => (
          <li key={step.id}>
            <DotIcon /> {step.title}
          </li>
        ))}
      </ul>
      <Link to={pathOf("setup")} class="button small">
        {t.views.setup.show}
      </Link>
    </aside>
  );
}

// The first start: what is missing and how to set it.
import { LoadingRows } from "../components/parts/states.tsx";
import { View } from "../components/parts/view.tsx";
import { RefreshIcon } from "../components/parts/view_icons.tsx";
import { openSteps, type Setup, SETUP_PATH } from "../components/setup/setup.ts";
import { SetupSteps } from "../components/setup/setup_steps.tsx";
import { useResource } from "../state/resource.ts";
import { t } from "../texts.ts";

const SECONDS = 15;

export function SetupView() {
  const { value, problem, isLoading, reload } = useResource<Setup>(SETUP_PATH, SECONDS);
  const texts = t.views.setup;
  return (
    <View
      title={texts.title}
      hint={value !== null && openSteps(value).length === 0 ? texts.allDone : texts.hint}
      problem={problem}
      onRetry={reload}
      actions={
        <button type="button" class="small" disabled={isLoading} onClick={reload}>
          <RefreshIcon /> {texts.checkAgain}
        </button>
      }
    >
      {value === null && problem === null && <LoadingRows count={3} />}
      {value !== null && <SetupSteps setup={value} />}
    </View>
  );
}

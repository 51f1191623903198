// Short messages in a corner.
import { closeToast, toasts } from "../../state/toasts.ts";
import { t } from "../../texts.ts";
import { IconButton } from "../icon_button.tsx";
import { Icon } from "../icons.tsx";

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(toast => (
        <div key={toast.id} class={`toast ${toast.isProblem ? "toast-problem" : ""}`}>
          <Icon name={toast.isProblem ? "alert" : "check"} />
          <p>{toast.text}</p>
          <IconButton label={t.close} onClick={() => closeToast(toast.id)}>
            <Icon name="cross" />
          </IconButton>
        </div>
      ))}
    </div>
  );
}

// An empty conversation: what one may ask.
import { t } from "../../texts.ts";
import { SetupCard } from "../setup/setup_card.tsx";

export function Welcome({ onAsk }: { onAsk(text: string): void }) {
  return (
    <section class="welcome">
      <h1>{t.welcome}</h1>
      <p>{t.welcomeHint}</p>
      <div class="suggestions">
        {t.suggestions.map(text => (
          <button type="button" key={text} onClick={() => onAsk(text)}>
            {text}
          </button>
        ))}
      </div>
      <SetupCard />
    </section>
  );
}

// A few choices in a row, one of them chosen: as filters of a list, or as the parts of a dialog.

interface Choice<T extends string> {
  value: T;
  label: string;
  count?: number;
}

interface ChoiceBarProps<T extends string> {
  label: string;
  choices: Choice<T>[];
  value: T;
  onChoose(value: NoInfer<T>): void;
}

export function ChoiceBar<T extends string>({ label, choices, value, onChoose }: ChoiceBarProps<T>) {
  return (
    <div class="choice-bar" role="group" aria-label={label}>
      {choices.map(choice => (
        <button
          type="button"
          key={choice.value}
          aria-pressed={choice.value === value}
          onClick={() => onChoose(choice.value)}
        >
          {choice.label}
          {choice.count !== undefined && <span class="choice-count">{choice.count}</span>}
        </button>
      ))}
    </div>
  );
}

// A field of a dialog: a label, a text, a hint.

interface TextFieldProps {
  id: string;
  label: string;
  hint?: string;
  value: string;
  onInput(value: string): void;
}

export function TextField({ id, label, hint, value, onInput }: TextFieldProps) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="text"
        value={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onInput={event => onInput(event.currentTarget.value)}
      />
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

const LABEL = /^[a-z0-9_]([a-z0-9-]*[a-z0-9])?$/i

/** Whether a text is the full name of a host: labels as in DNS, the last of which begins with a letter. */
export function isHostName(text: string): boolean {
  const labels = text.split('.')
  const last = labels.at(-1) ?? ''
  return (
    text.length <= 253 &&
    labels.length > 1 &&
    labels.every(label => label.length <= 63 && LABEL.test(label)) &&
    /^[a-z]/i.test(last)
  )
}

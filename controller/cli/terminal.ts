const plain = process.stdout.isTTY !== true || process.env.NO_COLOR !== undefined

const paint = (code: number) => (text: string) => (plain ? text : `\x1b[${code}m${text}\x1b[0m`)

export const bold = paint(1)
export const dim = paint(2)
export const red = paint(31)
export const green = paint(32)

/** One line on standard output. */
export function print(line = ''): void {
  process.stdout.write(`${line}\n`)
}

/**
 * Escapes characters that could mislead a reader of untrusted text, such as tenants' names and amphorae's logs:
 * control characters, which the terminal obeys, and characters that reorder, hide or break text.
 */
export function visible(text: string): string {
  return text.replaceAll(
    /(?![ \t])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/gu,
    character => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  )
}

/** As visible, for text of several lines. */
export const visibleLines = (text: string): string => text.split('\n').map(visible).join('\n')

/** Formats rows as lines with aligned columns; the last column is not padded. */
export function table(cells: readonly (readonly string[])[]): string[] {
  const rows = cells.map(row => row.map(visible))
  const widths = rows.reduce<number[]>(
    (widest, row) => row.map((cell, at) => Math.max(widest[at] ?? 0, cell.length)),
    [],
  )
  return rows.map(row =>
    row.map((cell, at) => (at === row.length - 1 ? cell : cell.padEnd(widths[at] ?? 0))).join('  '),
  )
}

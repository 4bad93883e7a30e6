import { readFileSync } from 'node:fs'

type Line = { time: number; text: string }

/** The last lines of several log files in order of time, each prefixed with the name of its source. */
export function recentLines(sources: Readonly<Record<string, string>>, count: number): string[] {
  const lines: Line[] = []
  for (const [name, path] of Object.entries(sources)) {
    const texts = [`${path}.1`, path].map(read).join('').split('\n').filter(Boolean).slice(-count)
    let time = 0
    for (const text of texts) {
      time = timeOf(text) ?? time
      lines.push({ time, text: `${name}: ${text}` })
    }
  }
  return lines
    .sort((one, other) => one.time - other.time)
    .slice(-count)
    .map(line => line.text)
}

/** Parses the timestamp of a line: `2026-11-21T10:00:00.000Z`, or keepalived's `Sat Nov 21 10:00:00 2026:`. */
function timeOf(line: string): number | null {
  const found = /^\d{4}-\S+|^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}/.exec(line)
  const time = found ? Date.parse(found[0]) : Number.NaN
  return Number.isNaN(time) ? null : time
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

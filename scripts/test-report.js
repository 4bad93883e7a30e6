import { Parser } from 'tap-parser'

/**
 * Parses tap's output and reports one line per file, preceded by every failed assertion in the file with its path of
 * subtest names and tap's diagnostic. Omits a subtest that failed only because of an assertion inside it.
 * @param {object} options
 * @param {(line: string) => void} options.say gets the line of each file
 * @param {(text: string) => void} options.print gets the lines of each failure
 * @returns `write` takes the next piece of the output; `soFar` counts the assertions in it; `end` ends the output and
 * returns the counts of all assertions, or null when the tests did not finish
 */
export function createReport({ say, print }) {
  const counts = { passed: 0, failed: 0, skipped: 0, todo: 0 }
  let ended = false
  const parser = new Parser()
  /** The raw lines of the last diagnostic. The parser's result could not be printed in the same form. */
  let diagnostic = []
  const follow = one => {
    let lines = []
    one.on('line', line => {
      if (line.startsWith('  ')) lines.push(line)
      else lines = []
    })
    one.on('assert', () => {
      diagnostic = lines
    })
    one.on('child', follow)
  }
  follow(parser)
  const tell = result => {
    const directive = describeDirective(result)
    const time = result.time === null ? '' : `  ${result.time}ms`
    say(`${result.ok || directive !== '' ? 'ok    ' : 'FAILED'}  ${result.name}${directive}${time}`)
  }
  parser.on('assert', tell)
  parser.on('pass', () => counts.passed++)
  parser.on('skip', () => counts.skipped++)
  parser.on('todo', () => counts.todo++)
  parser.on('fail', ({ fullname }) => {
    counts.failed++
    print(`      ${fullname}\n${diagnostic.map(line => `        ${line}`).join('')}`)
  })
  // tap prints its plan last.
  parser.on('plan', () => {
    ended = true
  })
  return {
    write: piece => parser.write(piece),
    soFar: counts,
    end: () => {
      if (!ended) return null
      parser.end()
      return counts
    },
  }
}

function describeDirective({ skip, todo }) {
  const [word, reason] = skip !== false ? ['SKIP', skip] : ['TODO', todo]
  if (reason === false) return ''
  return typeof reason === 'string' ? ` # ${word} ${reason}` : ` # ${word}`
}

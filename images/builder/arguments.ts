import { parseArgs } from 'node:util'

export const SUITES = ['bookworm', 'trixie'] as const

export type Suite = (typeof SUITES)[number]

export type Settings = {
  suite: Suite
  /** Of Debian's packages and of their security updates. */
  mirror: string
  securityMirror: string
  /** Relative to the top of the checkout, or absolute. */
  out: string
  /** Fetches Debian's packages again, though those of an earlier build are there. */
  fresh: boolean
}

/** A fault of the command line, in a sentence. */
export class UsageError extends Error {}

const HELP = `npm run images -- [OPTIONS]

Builds the image of an amphora into images/out.

  --suite SUITE            ${SUITES.join(' or ')} (default: bookworm)
  --mirror URL             Debian's packages (default: http://deb.debian.org/debian)
  --security-mirror URL    their security updates (default: http://deb.debian.org/debian-security)
  --out DIRECTORY          where the image goes (default: images/out)
  --fresh                  fetches the newest packages instead of those of the last build
`

/**
 * Reads the words behind `npm run images --`.
 * @returns the settings, or the text to print instead of a build
 * @throws UsageError
 */
export function readArguments(words: readonly string[]): Settings | { help: string } {
  const values = parse(words)
  if (values.help === true) return { help: HELP }
  const suite = SUITES.find(known => known === values.suite)
  if (suite === undefined) {
    throw new UsageError(`There is no suite ${values.suite}. The suites are ${SUITES.join(' and ')}.`)
  }
  const urls = { '--mirror': values.mirror, '--security-mirror': values['security-mirror'] }
  for (const [option, text] of Object.entries(urls)) {
    if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol) || /\s/.test(text)) {
      throw new UsageError(`${option} needs an address like http://deb.debian.org/debian; it was given ${text}.`)
    }
  }
  if (values.out.trim() === '') throw new UsageError('--out needs a directory.')
  return {
    suite,
    mirror: urls['--mirror'],
    securityMirror: urls['--security-mirror'],
    out: values.out,
    fresh: values.fresh,
  }
}

function parse(words: readonly string[]) {
  try {
    const { values } = parseArgs({
      args: [...words],
      options: {
        suite: { type: 'string', default: 'bookworm' },
        mirror: { type: 'string', default: 'http://deb.debian.org/debian' },
        'security-mirror': { type: 'string', default: 'http://deb.debian.org/debian-security' },
        out: { type: 'string', default: 'images/out' },
        fresh: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
    return values
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error))
  }
}

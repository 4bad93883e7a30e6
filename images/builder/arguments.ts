import { parseArgs } from 'node:util'

export const SUITES = ['bookworm', 'trixie'] as const

export type Suite = (typeof SUITES)[number]

/** What a build makes, and the directory where it goes. */
const TARGETS = { amphora: 'images/out', lab: 'images/out/boxes' } as const

export type Target = keyof typeof TARGETS

export type Settings = {
  target: Target
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

const HELP = `npm run images -- [TARGET] [OPTIONS]

Builds the image of an amphora, or with the target "lab" the boxes of the machines that "vagrant up" starts, for libvirt
and for VirtualBox.

  --suite SUITE            ${SUITES.join(' or ')} (default: bookworm)
  --mirror URL             Debian's packages (default: http://deb.debian.org/debian)
  --security-mirror URL    their security updates (default: http://deb.debian.org/debian-security)
  --out DIRECTORY          where it goes (default: ${TARGETS.amphora}, of the lab ${TARGETS.lab})
  --fresh                  fetches the newest packages instead of those of the last build
`

/**
 * Reads the words behind `npm run images --`.
 * @returns the settings, or the text to print instead of a build
 * @throws UsageError
 */
export function readArguments(words: readonly string[]): Settings | { help: string } {
  const { values, positionals } = parse(words)
  if (values.help === true) return { help: HELP }
  const target = targetOf(positionals)
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
  if (values.out?.trim() === '') throw new UsageError('--out needs a directory.')
  return {
    target,
    suite,
    mirror: urls['--mirror'],
    securityMirror: urls['--security-mirror'],
    out: values.out ?? TARGETS[target],
    fresh: values.fresh,
  }
}

function targetOf([name = 'amphora', ...others]: readonly string[]): Target {
  const target = (Object.keys(TARGETS) as Target[]).find(known => known === name)
  if (target === undefined || others.length > 0) {
    throw new UsageError(
      `A build makes one of ${Object.keys(TARGETS).join(' and ')}, not ${[name, ...others].join(' ')}.`,
    )
  }
  return target
}

function parse(words: readonly string[]) {
  try {
    return parseArgs({
      args: [...words],
      allowPositionals: true,
      options: {
        suite: { type: 'string', default: 'bookworm' },
        mirror: { type: 'string', default: 'http://deb.debian.org/debian' },
        'security-mirror': { type: 'string', default: 'http://deb.debian.org/debian-security' },
        out: { type: 'string' },
        fresh: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error))
  }
}

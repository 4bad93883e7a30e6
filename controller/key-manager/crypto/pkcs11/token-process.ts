import type { FromTokenProcess, TokenFault, TokenSettings, ToTokenProcess } from './calls.js'
import { errorText, type Pkcs11Module, TokenError } from './session.js'
import { openToken, type Token } from './token.js'

/**
 * A separate process holds the PKCS#11 library, because the library's calls block and may hang or crash. It
 * exits when its parent does.
 */
let token: Token | null = null

const send = (message: FromTokenProcess): void => {
  process.send?.(message, undefined, {}, () => undefined)
}

function faultOf(error: unknown): TokenFault {
  return error instanceof TokenError
    ? { fault: error.fault, reason: error.message }
    : { fault: 'broken', reason: `The PKCS#11 library failed: ${errorText(error)}.` }
}

async function start(settings: TokenSettings): Promise<void> {
  try {
    token = openToken(await loadModule(), settings)
    send({ started: true })
  } catch (error) {
    send({ started: false, fault: faultOf(error) })
  }
}

async function loadModule(): Promise<Pkcs11Module> {
  try {
    return (await import('pkcs11js')).default
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND'
    throw new TokenError(
      'misconfigured',
      `The npm package pkcs11js ${isMissing ? 'is not installed' : 'cannot be loaded'}. \`npm install\` builds it and needs a C++ compiler, make and Python.`,
    )
  }
}

process.on('message', (message: ToTokenProcess) => {
  if ('start' in message) {
    void start(message.start)
    return
  }
  const { id, ask } = message
  try {
    if (token === null) throw new TokenError('broken', 'The token is not open.')
    send({ id, result: token.perform(ask) })
  } catch (error) {
    send({ id, fault: faultOf(error) })
  }
})
process.on('disconnect', () => process.exit(0))
// Ctrl-C reaches the whole process group, but the parent decides when this process ends.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined)

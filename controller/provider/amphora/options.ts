import { z } from 'zod'

const file = z.string().optional()

/** The options of the amphora provider: the keys by which amphorae are reached. */
export const amphoraKeyOptions = z
  .strictObject({
    amphora_master: file.describe(
      'File with 32 random bytes in hexadecimal: amphora host keys and heartbeat keys are derived from it',
    ),
    controller_ssh: file.describe('File with the ed25519 private key that reaches the agents'),
    operator_ssh: file.describe('File with the ed25519 private key that gives operators a shell on amphorae'),
  })
  .prefault({})

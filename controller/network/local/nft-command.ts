import { runTool } from './ip-command.js'

/**
 * Runs nftables commands in one transaction, in a named network namespace or, with null, the host's.
 * @throws IpCommandError with nft's error output, or after 10 s
 */
export async function nft(namespace: string | null, commands: string): Promise<void> {
  const nft = ['nft', '-f', '-'] as const
  await runTool(namespace === null ? nft : ['nsenter', `--net=/run/netns/${namespace}`, ...nft], commands)
}

# Rows `column,collective,backend,ranks,type,bytes,mode,min,median,max,overlap,algorithm` to a table in Markdown: a line per size, the
# median over rounds in each cell, then commstream's time against each of the others, below 1 is faster; last the geometric means.

function median_of(key,    n, i, j, value, list)
{
    n = count[key]
    if (n == 0)
        return -1
    for (i = 1; i <= n; i++) {
        value = times[key, i]
        for (j = i - 1; j > 0 && list[j] > value; j--)
            list[j + 1] = list[j]
        list[j + 1] = value
    }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}

function time_text(us)
{
    if (us <= 0)
        return "-"
    return us < 10 ? sprintf("%.2f", us) : us < 100 ? sprintf("%.1f", us) : sprintf("%.0f", us)
}

function ratio_text(ours, theirs, column)
{
    if (ours <= 0 || theirs <= 0)
        return "-"
    log_sum[column] += log(ours / theirs)
    log_count[column]++
    return sprintf("%.2f", ours / theirs)
}

function mean_text(column)
{
    return log_count[column] ? sprintf("**%.2f**", exp(log_sum[column] / log_count[column])) : "-"
}

function size_text(bytes)
{
    if (bytes >= 1048576 && bytes % 1048576 == 0)
        return bytes / 1048576 " M"
    if (bytes >= 1024 && bytes % 1024 == 0)
        return bytes / 1024 " K"
    return bytes
}

{
    key = $1 SUBSEP $6
    times[key, ++count[key]] = $9 + 0
    if ($1 == "ours" && !($6 in algorithm))
        size[++sizes] = $6
    if ($1 == "ours")
        algorithm[$6] = $12
}

END {
    printf "| bytes | commstream | floor | %s nonblocking | %s blocking | to floor | to nonblocking | to blocking | algorithm |\n", peer, peer
    print "|---:|---:|---:|---:|---:|---:|---:|---:|---|"
    for (i = 1; i <= sizes; i++) {
        b = size[i]
        ours = median_of("ours" SUBSEP b)
        floor = median_of("floor" SUBSEP b)
        nonblocking = median_of("nonblocking" SUBSEP b)
        blocking = median_of("blocking" SUBSEP b)
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", size_text(b), time_text(ours), time_text(floor), time_text(nonblocking),
            time_text(blocking), ratio_text(ours, floor, "floor"), ratio_text(ours, nonblocking, "nonblocking"),
            ratio_text(ours, blocking, "blocking"), algorithm[b]
    }
    printf "| geometric mean | | | | | %s | %s | %s | |\n", mean_text("floor"), mean_text("nonblocking"), mean_text("blocking")
}
